"""The version that a job works on."""

import msgspec


class JobSource(msgspec.Struct, frozen=True, kw_only=True):
    """The source of a job; `version` 0 is the highest that is ready when the job is made."""

    model: str
    version: int = 0
