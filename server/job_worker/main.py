"""The worker beside a server, a child of its control process (`server.control_process.job_child`).

Its settings come as the first message of its parent, with which it ends.
"""

import logging
import os

from control.errors import ControlError
from repository.process.parent import connect
from server.desired.control_start import decode_start
from server.job_worker.folders import UMASK
from server.job_worker.program import run_worker
from server.logs.lines import LOG, log_settings

_log = logging.getLogger(__name__)


def main(channel_fd: int, parent_pid: int) -> int:
    """Run until SIGTERM or the parent's end; the exit status."""
    os.umask(UMASK)
    channel = connect(channel_fd, parent_pid)
    settings = decode_start(channel.receive().payload).settings
    LOG.set_up(log_settings(settings))
    try:
        run_worker(settings, settings.job_queue)
    except (ControlError, OSError) as error:
        _log.error("the job worker cannot run: %s", error)
        return 1
    return 0
