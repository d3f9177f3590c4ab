"""Where a version that a job has made comes from, as rows and answers have it. Pure."""

import msgspec


class LineageStep(msgspec.Struct, frozen=True):
    """A job, and the version that it worked on; `digest` "": of a folder."""

    job: str
    type: str
    model: str
    version: int
    digest: str


class Lineage(LineageStep, frozen=True):
    """The job that made a version, and the version that it worked on. `pipeline`: the one that it
    was a step of, "" for none. `earlier`: the jobs that made what it worked on, the last first;
    each has a report of its job's id."""

    pipeline: str = ""
    earlier: tuple[LineageStep, ...] = ()
