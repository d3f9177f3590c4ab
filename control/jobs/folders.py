"""Where the files of jobs lie in the store: a folder for each claim, which nobody else writes to.

<store>/jobs/<job>/<fence>/output    the result, whole once the worker has finished the claim
<store>/jobs/<job>/<fence>/…         anything else of that attempt
"""

from pathlib import Path

JOBS, OUTPUT = "jobs", "output"


def claim_folder(store: Path, job_id: str, fence: int) -> Path:
    """The folder of one claim; its worker makes it. The publisher removes it when the job ends."""
    return store / JOBS / job_id / str(fence)


def output_folder(store: Path, job_id: str, fence: int) -> Path:
    """Where the files of the result are put: `config.pbtxt` and the folder `1`, on the file system
    of the store, flushed to the disk before the claim is finished."""
    return claim_folder(store, job_id, fence) / OUTPUT
