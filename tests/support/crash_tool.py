"""A job's process for tests: it takes half a second, and its result is the source and one file."""

import json
import os
import shutil
import sys
import time
from pathlib import Path

STEPS = 5


def main() -> int:
    task = json.loads(Path(sys.argv[1]).read_text())
    descriptor = int(sys.argv[2])
    output = Path(task["output"])
    (output / "1").mkdir()
    for step in range(STEPS):
        time.sleep(0.1)
        message = {"type": "progress", "fraction": step / STEPS, "text": f"step {step}"}
        os.write(descriptor, json.dumps(message).encode() + b"\n")
    for path in Path(task["source"]).iterdir():
        target = output / path.name if path.name == "config.pbtxt" else output / "1" / path.name
        shutil.copyfile(path, target)
    (output / "1" / "copied.txt").write_text("whole")
    report = {"title": "Copied", "verdict": "accepted"}
    message = {"type": "finished", "report": report}
    os.write(descriptor, json.dumps(message).encode() + b"\n")
    return 0
