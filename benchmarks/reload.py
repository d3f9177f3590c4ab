"""Versions come and go under load: `python -m benchmarks.reload`.

A client sends at concurrency 16 while `digits/3/` is copied in, removed, and a corrupt `digits/4/`
is copied in. Prints how many requests failed, which versions answered, what the index says of
version 4, the worst event-loop stall, and p99 across the changes beside p99 without.
"""

import argparse
import asyncio
import json
import re
import shutil
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles

import numpy as np
import uvloop

from benchmarks.peers.modelyard import started
from benchmarks.peers.seam import Peer
from examples.build import build_all
from examples.digits.more_versions import place

CONCURRENCY = 16
SLICE_S = 0.5
Change = Callable[[], object]


@dataclass
class Seen:
    """What the client saw in one phase; latencies in milliseconds."""

    latencies: list[float] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)
    slices: dict[int, Counter[str]] = field(default_factory=dict)

    def note(self, version: str, latency_ms: float) -> None:
        self.latencies.append(latency_ms)
        self.slices.setdefault(int(time.monotonic() / SLICE_S), Counter())[version] += 1

    @property
    def versions(self) -> list[str]:
        """Which version answered, as it changed: of every slice of time, the one that answered
        most (around a swap, sixteen connections see answers of both)."""
        most = [self.slices[at].most_common(1)[0][0] for at in sorted(self.slices)]
        return [version for at, version in enumerate(most) if at == 0 or most[at - 1] != version]

    @property
    def p99_ms(self) -> float:
        return quantiles(self.latencies, n=100)[98]


def main() -> int:
    """Run both phases and print one JSON object; exit status 1 if a request failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reload", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="length of the changing phase")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="modelyard-reload-") as folder:
        root = Path(folder)
        build_all(root / "models")
        for version in (3, 4):
            place(version, root / "spare")
        with started(root / "models", root / "cache") as server:
            report = uvloop.run(_measure(server, root, arguments.seconds))
    json.dump(report, sys.stdout, indent=2)
    print()
    return 1 if report["failed"] else 0


async def _measure(server: Peer, root: Path, seconds: float) -> dict[str, object]:
    body = _body()
    quiet = await _phase(server, body, seconds / 2, [])
    digits, spare = root / "models" / "digits", root / "spare" / "digits"
    changes = [
        lambda: shutil.copytree(spare / "3", digits / "3"),
        lambda: shutil.rmtree(digits / "3"),
        lambda: shutil.copytree(spare / "4", digits / "4"),
    ]
    changing = await _phase(server, body, seconds, changes)
    return {
        "requests": len(quiet.latencies) + len(changing.latencies),
        "failed": sum((quiet.failures + changing.failures).values()),
        "failures": dict(quiet.failures + changing.failures),
        "versions": changing.versions,
        "version_4": await asyncio.to_thread(_reason, server.rest),
        "p99_ms_without_changes": round(quiet.p99_ms, 2),
        "p99_ms_across_changes": round(changing.p99_ms, 2),
        "worst_loop_stall_ms": await asyncio.to_thread(_stall_ms, server.metrics),
    }


async def _phase(server: Peer, body: bytes, seconds: float, changes: Sequence[Change]) -> Seen:
    """Send for `seconds`; spread the changes evenly over the time."""
    seen = Seen()
    ends = time.monotonic() + seconds
    senders = [
        asyncio.create_task(_send(server.rest, body, ends, seen)) for _ in range(CONCURRENCY)
    ]
    for change in changes:
        await asyncio.sleep(seconds / (len(changes) + 1))
        await asyncio.to_thread(change)
    await asyncio.gather(*senders)
    return seen


async def _send(address: str, body: bytes, ends: float, seen: Seen) -> None:
    host, _, port = address.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    while (began := time.monotonic()) < ends:
        try:
            writer.write(body)
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(re.search(rb"(?i)content-length: (\d+)", head)[1])  # type: ignore[index]
            answer = json.loads(await reader.readexactly(length))
        except (OSError, asyncio.IncompleteReadError) as error:
            seen.failures[type(error).__name__] += 1
            reader, writer = await asyncio.open_connection(host, int(port))
            continue
        if head.startswith(b"HTTP/1.1 200 "):
            seen.note(answer["model_version"], (time.monotonic() - began) * 1000)
        else:
            seen.failures[answer["error"]] += 1
    writer.close()


def _body() -> bytes:
    image = np.random.default_rng(0).random((1, 1, 8, 8), np.float32)
    document = {
        "inputs": [
            {
                "name": "IMAGE",
                "datatype": "FP32",
                "shape": [1, 1, 8, 8],
                "data": image.ravel().tolist(),
            }
        ]
    }
    content = json.dumps(document).encode()
    head = b"POST /v2/models/digits/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
    return head % len(content) + content


def _reason(address: str) -> str:
    request = urllib.request.Request(f"http://{address}/v2/repository/index", b"", method="POST")
    with urllib.request.urlopen(request, timeout=10) as response:
        rows = json.load(response)
    found = [row for row in rows if row["name"] == "digits" and row.get("version") == "4"]
    return f"{found[0]['state']}: {found[0].get('reason', '')}" if found else "not in the index"


def _stall_ms(address: str) -> float:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as response:
        text = response.read().decode()
    value = re.search(r"^modelyard_event_loop_stall_seconds_max\S* (\S+)$", text, re.MULTILINE)
    return round(float(value[1]) * 1000, 2) if value else float("nan")


if __name__ == "__main__":
    sys.exit(main())
