"""A job's process for tests that never ends by itself, and is deaf to SIGTERM."""

import os
import signal
import sys
import time


def main() -> int:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.write(int(sys.argv[2]), b'{"type": "progress", "fraction": 0.1, "text": "asleep"}\n')
    time.sleep(600)
    return 0
