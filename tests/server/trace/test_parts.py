"""Tracing without a server: the flag, sampling, the queue, the files."""

import json
import time
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest

from schedulers.request import InferRequest
from server.errors import InvalidRequest, Unsupported
from server.settings import trace_config
from server.settings.table import Settings, SettingsError
from server.settings.trace_settings import TraceSettings
from server.trace.file import TraceFile
from server.trace.record import HTTP, RequestReceipt, Trace
from server.trace.sampling import Sampler
from server.trace.tracing import CannotTrace, Tracing, start_tracing


class Held:
    """A sink whose writing waits until it is let go."""

    queue_size, batch_size, delay_secs = 3, 1, 0.0

    def __init__(self) -> None:
        self.begun, self.go = Event(), Event()
        self.traces: list[Trace] = []

    def write(self, traces: Any) -> int:
        self.begun.set()
        assert self.go.wait(60)
        self.traces += traces
        return 0

    def retire(self, sampler: Sampler) -> None: ...
    def close(self) -> None: ...


def objects(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text())
    return found


RECEIVED = RequestReceipt(HTTP, 1, 2)


def traced(sink: Any, **settings: Any) -> Tracing:
    level = {"level": ("TIMESTAMPS",), "rate": 1, **settings}
    config = trace_config.TraceConfig(file="there", settings=TraceSettings(**level))
    return Tracing(config, sink)


def begin(tracing: Tracing) -> Trace:
    trace = tracing.begin("m", 1, RECEIVED)
    assert trace is not None
    return trace


def test_slow_writer_loses_traces_and_counts_them_but_never_waits() -> None:
    sink = Held()
    tracing = traced(sink)
    begin(tracing).end()
    assert sink.begun.wait(60)
    for _ in range(5):
        begin(tracing).end()
    assert tracing.dropped == 2
    sink.go.set()
    assert tracing.close()
    assert (tracing.written, len(sink.traces)) == (4, 4)


def test_tracing_turns_itself_off_when_the_count_is_used_up(tmp_path: Path) -> None:
    tracing = traced(TraceFile(tmp_path / "t.json"), count=2)
    assert tracing.on
    for _ in range(2):
        begin(tracing).end()
    assert not tracing.on
    assert tracing.begin("m", 1, RECEIVED) is None
    assert tracing.close()
    assert [one["id"] for one in objects(tmp_path / "t.json") if "model_name" in one] == [1, 2]


def test_trace_that_ends_after_its_settings_were_replaced_is_still_written(tmp_path: Path) -> None:
    tracing = traced(TraceFile(tmp_path / "t.json"), log_frequency=10)
    late = begin(tracing)
    tracing.change("", {"trace_level": ["OFF"]})
    assert not tracing.on
    late.end()
    deadline = time.monotonic() + 60
    while not (tmp_path / "t.json.0").exists():
        assert time.monotonic() < deadline, "waited 60 s for the numbered file"
        time.sleep(0.01)
    assert tracing.close()


def test_file_that_cannot_be_written_loses_traces_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "t.json").mkdir()
    tracing = traced(TraceFile(tmp_path / "t.json"))
    begin(tracing).end()
    assert tracing.close()
    assert (tracing.written, tracing.dropped) == (0, 1)
    assert "t.json' cannot be written: Is a directory" in caplog.text


def test_bytes_and_odd_texts_make_valid_json(tmp_path: Path) -> None:
    tracing = traced(TraceFile(tmp_path / "t.json"), level=("TENSORS",))
    trace = begin(tracing)
    words = np.array([b'say "hi"', b"\xff\n", "grün".encode()], np.object_)
    flags = np.array([True, False])
    request = InferRequest("m", 1, {"WORDS": words, "FLAGS": flags}, 1, None, 0, id='a"\n')
    trace.admitted(request)
    trace.end()
    assert tracing.close()
    found = objects(tmp_path / "t.json")
    assert found[0]["request_id"] == 'a"\n'
    assert found[1]["tensor"]["data"] == '"say "hi"","\\xff\n","grün"'
    assert found[2]["tensor"] == {"name": "FLAGS", "data": "1,0", "shape": "2", "dtype": "BOOL"}


def test_unknown_keys_and_values_of_the_flag_are_refused() -> None:
    for item in ("speed=1", "rate=x", "jaeger,url=http://x", "level", "opentelemetry,resource=x"):
        with pytest.raises(ValueError):
            trace_config.parse((item,))


def test_flag_reads_what_triton_reads() -> None:
    config = trace_config.parse(
        (
            "triton,file=a=b.json",
            "triton,log-frequency=50",
            "rate=100",
            "level=TIMESTAMPS",
            "level=TENSORS",
            "count=7",
            "opentelemetry,resource=service.name=x",
            "opentelemetry,bsp_schedule_delay=9",
        )
    )
    assert config.settings == TraceSettings(("TIMESTAMPS", "TENSORS"), 100, 7, 50)
    assert (config.file, config.resource, config.options) == (
        "a=b.json",
        {"service.name": "x"},
        {"bsp_schedule_delay": 9},
    )


def test_level_without_a_file_stops_the_server() -> None:
    with pytest.raises(SettingsError, match="trace_config: trace file name is not given"):
        Settings(trace_config=("level=TIMESTAMPS",))


def test_folder_that_does_not_exist_stops_the_server(tmp_path: Path) -> None:
    config = trace_config.parse((f"file={tmp_path / 'no' / 't.json'}",))
    with pytest.raises(CannotTrace, match="there is no folder"):
        start_tracing(config, "modelyard", "0")


def test_without_a_file_a_level_is_refused_over_the_wire_as_triton_does() -> None:
    with pytest.raises(InvalidRequest, match="trace setting :trace file name is not given"):
        Tracing().change("", {"trace_level": ["TIMESTAMPS"]})
    with pytest.raises(Unsupported, match="trace file location can not be updated"):
        Tracing().change("", {"trace_file": ["x"]})
