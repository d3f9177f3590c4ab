"""Imports for tests: archives and artefacts to fetch, and a real importer over a database."""

import asyncio
import io
import tarfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import TensorProto, helper

from control.gateways.messages import LoadReport, LoadRow
from control.imports import service as imports
from control.imports.importer import Importer, ImportRules
from control.imports.sealing import ImportSealer
from control.sql.database import Database
from control.views import ImportView
from repository.sources.limits import FetchLimits
from server.control_process.version_checks import CheckerProcesses
from server.fleet.checks.check import Checker

DEADLINE_SECS = 60.0
LIMITS = FetchLimits(64 << 20, 100, stall_s=5.0, total_s=300.0, attempts=2, pause_s=0.01)


def onnx_model(scale: float = 2.0, padding_bytes: int = 0) -> bytes:
    """A model that multiplies by `scale`; `padding_bytes` of documentation make it larger."""
    shape = ["n", 4]
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "scale"], ["y"])],
        "scaled",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [helper.make_tensor("scale", TensorProto.FLOAT, [1], [scale])],
        doc_string="x" * padding_bytes,
    )
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def tar(files: dict[str, bytes]) -> bytes:
    """A .tar.gz of plain files."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


@dataclass
class Running:
    """An importer that runs, and the rows it works on."""

    database: Database
    store: Path
    importer: Importer
    terms: ImportRules

    async def ended(self, import_id: str) -> ImportView:
        """The import once a gateway must speak, or it is over."""
        return await self.until(
            import_id, lambda view: view.finished_at is not None or view.state == "deployed"
        )

    async def until(self, import_id: str, true: Callable[[ImportView], bool]) -> ImportView:
        async with asyncio.timeout(DEADLINE_SECS):
            while not true(view := await asyncio.to_thread(self.view, import_id)):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        return view

    def view(self, import_id: str) -> ImportView:
        with self.database.reading() as session:
            return imports.get_import(session, import_id)

    def loaded(self, model: str, state: str = "READY", reason: str = "") -> None:
        """The gateway says what it has, as it does once all is loaded."""
        rows = (LoadRow(model, 1, state, reason),)
        self.importer.on_load_report(LoadReport("server1", 10**6, True, rows, frozenset()))


@asynccontextmanager
async def importing(
    database: Database, store: Path, allowed: tuple[str, ...], folders: tuple[Path, ...] = ()
) -> AsyncIterator[Running]:
    """Until the block ends, as the control process does it."""
    checker = Checker()
    terms = ImportRules(allowed, folders, LIMITS)
    sealer = ImportSealer(database, store, CheckerProcesses(checker))
    importer = Importer(database, store, sealer, terms, "boot1", lambda: None)
    pump = asyncio.create_task(importer.run())
    try:
        yield Running(database, store, importer, terms)
    finally:
        pump.cancel()
        await asyncio.gather(pump, return_exceptions=True)
        await checker.close()
