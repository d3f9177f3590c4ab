"""A job's process for tests that draws a curve until somebody removes the file `waiting` in its
scratch folder, and then finishes."""

import os
import sys
import time
from itertools import count
from pathlib import Path

import msgspec


def main() -> int:
    task = msgspec.json.decode(Path(sys.argv[1]).read_bytes())
    descriptor = int(sys.argv[2])
    waiting = Path(task["scratch"]) / "waiting"
    waiting.touch()
    for step in count():
        if not waiting.exists():
            break
        _say(descriptor, type="point", curve="loss", step=step, value=1.0)
        time.sleep(0.1)
    _say(descriptor, type="note", text=f"{step} steps")
    _say(descriptor, type="finished", report={"title": "Waited", "verdict": "advice"})
    return 0


def _say(descriptor: int, **message: object) -> None:
    os.write(descriptor, msgspec.json.encode(message) + b"\n")
