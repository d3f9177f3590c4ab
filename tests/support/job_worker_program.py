"""`modelyard worker` whose jobs run `support.crash_tool`: `-m support.job_worker_program …`."""

import os
import sys
from pathlib import Path

from jobs.process.program import ROOT
from server.cli.main import make_parser
from server.job_worker.command import work
from server.job_worker.program import JobTools
from server.settings.sources import read_settings

TOOLS = JobTools("support.crash_tool", (str(ROOT), str(ROOT / "tests")))


def main() -> int:
    given = vars(make_parser().parse_args(["worker", *sys.argv[1:]]))
    flags = {name: text for name, text in given.items() if name != "run"}
    return work(read_settings(flags, os.environ, Path.cwd()), ("default",), TOOLS)


if __name__ == "__main__":
    sys.exit(main())
