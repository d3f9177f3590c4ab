"""Which subjects a chart is of, and how they make its series. Pure."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from control.series.points import SeriesSubject, SubjectKind

SERVED = ""
"""The series of servers, which says when one was there; no other has an empty name."""


class SeriesGrouping(NamedTuple):
    """`kind` of the subjects that are looked at; `name`: of the series that one belongs to."""

    kind: SubjectKind
    name: Callable[[SeriesSubject], str]


GROUPINGS = {
    "model": SeriesGrouping("version", lambda one: one.name),
    "version": SeriesGrouping("version", lambda one: str(one.version)),
    "arm": SeriesGrouping("arm", lambda one: one.arm),
    "mirror": SeriesGrouping("mirror", lambda one: one.arm),
    "server": SeriesGrouping("server", lambda _: "server"),
}


class SeriesSelection(NamedTuple):
    """`by`: one of GROUPINGS. `about`: the model's or route's name, "" for all; `version`: of that
    one alone, None for all. Hashable: it names what was read."""

    by: str
    about: str = ""
    version: int | None = None

    def name_of(self, subject: SeriesSubject) -> str | None:
        """Of the series that the subject's points belong to; None for one that is left out."""
        grouping = GROUPINGS[self.by]
        if subject.kind != grouping.kind:
            return SERVED if subject.kind == "server" else None
        if self.about and subject.name != self.about:
            return None
        if self.version is not None and subject.version != self.version:
            return None
        return grouping.name(subject)

    @property
    def prefixes(self) -> Sequence[str]:
        """What the keys of its subjects begin with, each up to a slash."""
        kind = GROUPINGS[self.by].kind
        if kind == "server":
            return ("server/",)
        return (f"{kind}/{self.about}/" if self.about else f"{kind}/", "server/")
