"""A problem and its acknowledgement as the control API tells them. Pure."""

import msgspec

from control.clock import Moment


class Acknowledgement(msgspec.Struct, frozen=True):
    """That somebody knows of a problem, and what they say of it."""

    note: str
    by: str
    at: Moment


class ProblemView(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong now. `count` subjects, such as versions, have the same reason. `since`: when
    the first of them began. `page`: of the console, which tells more. `by`: whose change it came
    with, "" when nobody's. `key`: to acknowledge it by; `acknowledged` holds until it is another
    reason, or it has passed and begun anew. `members`: of each subject on each server."""

    key: str
    kind: str
    title: str
    reason: str
    count: int
    subjects: tuple[str, ...]
    since: Moment | None
    page: str
    by: str
    acknowledged: Acknowledgement | None
    members: tuple[str, ...]
