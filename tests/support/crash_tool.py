"""A job's process for tests: it takes up to half a second for each of its threads, by its id, and
its result is the source and one file."""

import json
import os
import shutil
import sys
import time
import zlib
from pathlib import Path

STEPS_PER_THREAD = 5


def main() -> int:
    task = json.loads(Path(sys.argv[1]).read_text())
    descriptor = int(sys.argv[2])
    output = Path(task["output"])
    (output / "1").mkdir()
    steps = 1 + zlib.crc32(task["job"].encode()) % (STEPS_PER_THREAD * task["threads"])
    for step in range(steps):
        time.sleep(0.1)
        message = {"type": "progress", "fraction": step / steps, "text": f"step {step}"}
        os.write(descriptor, json.dumps(message).encode() + b"\n")
    for path in Path(task["source"]).iterdir():
        target = output / path.name if path.name == "config.pbtxt" else output / "1" / path.name
        shutil.copyfile(path, target)
    (output / "1" / "copied.txt").write_text("whole")
    report = {"title": "Copied", "verdict": "accepted"}
    message = {"type": "finished", "report": report}
    os.write(descriptor, json.dumps(message).encode() + b"\n")
    return 0
