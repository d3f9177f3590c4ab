"""The version that a job works on."""

from typing import ClassVar

import msgspec


class JobSource(msgspec.Struct, frozen=True, kw_only=True):
    """The source of a job; `version` 0 is the highest that is ready when the job is made.

    result_model: the model that gets the result as its next version; "" for the source's own, or,
        where the source lies in a folder or a git repository, one named after it and the job.
    NEEDS_TRUST: whether jobs of the type run code out of the model's repository whatever their
        fields say, so that only a publisher whom an administrator trusts may have them run.
    """

    NEEDS_TRUST: ClassVar[bool] = False

    model: str
    version: int = 0
    result_model: str = ""
