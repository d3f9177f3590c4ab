"""`modelyard worker`: run the jobs of a server, on its machine or another one."""

import logging
import os
from collections.abc import Sequence

from control import state_paths
from control.errors import ControlError
from jobs.worker.broker import BadBroker
from server.job_worker.folders import UMASK
from server.job_worker.program import JobTools, run_worker
from server.logs.lines import LOG, log_settings
from server.settings.table import Settings

_log = logging.getLogger(__name__)


def work(settings: Settings, queues: Sequence[str], tools: JobTools | None = None) -> int:
    """Run jobs until SIGTERM or SIGINT; the exit status."""
    os.umask(UMASK)
    LOG.set_up(log_settings(settings))
    try:
        settings.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        state_paths.close_folder(settings.state_dir)
        run_worker(settings, queues, tools)
    except (ControlError, BadBroker, OSError) as error:
        _log.error("the job worker cannot run: %s", error)
        return 1
    return 0
