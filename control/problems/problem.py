"""One thing that is wrong, its key, and those that have one reason as one row. Pure."""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from control.clock import Moment
from control.problems.views import Acknowledgement, ProblemView

ProblemKind = Literal["server", "load", "health", "drift", "route", "rollout", "push"]

SHORT = 8
"""Characters of a server's id that tell it from others."""

MOST_NAMES = 10
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Verb:
    """What is wrong with one subject, and with several of a kind that are called `nouns`."""

    one: str
    many: str
    nouns: str = "versions"


@dataclass(frozen=True, slots=True)
class Problem:
    """`subject` does what `verb` says, `on` some servers ("" where that says nothing). `name`: of
    the model, route or repository, which a reason may contain. `page`: of the console. `by`: whose
    change it came with, "" when nobody's. `same`: what problems have in common that are one row,
    from the beginning the reason without names and numbers."""

    kind: ProblemKind
    subject: str
    verb: Verb
    why: str
    page: str
    since: Moment | None = None
    on: str = ""
    name: str = ""
    by: str = ""
    same: str = ""

    @property
    def key(self) -> str:
        """It is another problem when its subject, its server or its reason is another."""
        return _digest(self.subject, self.on, self.cause)

    @property
    def cause(self) -> str:
        if self.same:
            return f"{self.kind}|{self.verb.one}|{self.same}"
        own = rf"(?<!\w){re.escape(self.name)}(?!\w)"
        why = re.sub(own, "", self.why) if self.name else self.why
        return f"{self.kind}|{self.verb.one}|{_NUMBER.sub('', why)}"


Acknowledged = Mapping[str, Acknowledgement]
"""By the keys of problems."""


def in_rows(problems: Iterable[Problem], acknowledged: Acknowledged) -> list[ProblemView]:
    """A row for each reason, and in it as many problems as have it; those that were acknowledged
    together are a row of their own, behind the others."""
    rows: dict[tuple[str, Acknowledgement | None], list[Problem]] = {}
    for one in problems:
        rows.setdefault((one.cause, _in_force(one, acknowledged)), []).append(one)
    shown = [_row(cause, several, note) for (cause, note), several in rows.items()]
    return sorted(shown, key=lambda one: one.acknowledged is not None)


def _in_force(problem: Problem, acknowledged: Acknowledged) -> Acknowledgement | None:
    """One that has passed and begun anew is not acknowledged."""
    found = acknowledged.get(problem.key)
    if found is None or (problem.since is not None and problem.since > found.at):
        return None
    return found


def _row(cause: str, several: Sequence[Problem], note: Acknowledgement | None) -> ProblemView:
    first = several[0]
    subjects = list(dict.fromkeys(one.subject for one in several))
    servers = sorted({one.on[:SHORT] for one in several if one.on})
    many = len(subjects) > 1
    does = f"{len(subjects)} {first.verb.nouns} {first.verb.many}" if many else (
        f"{first.subject} {first.verb.one}"
    )  # fmt: skip
    return ProblemView(
        key=_digest(cause, "" if note is None else note.note),
        kind=first.kind,
        title=does + (f" on server {', '.join(servers)}" if servers else ""),
        reason=first.why + (f" ({_names(subjects)})" if many else ""),
        count=len(subjects),
        subjects=tuple(subjects),
        since=min((one.since for one in several if one.since), default=None),
        page="/models" if many and first.page.startswith("/models/") else first.page,
        by=first.by,
        acknowledged=note,
        members=tuple(sorted({one.key for one in several})),
    )


def _names(subjects: Sequence[str]) -> str:
    return ", ".join(subjects[:MOST_NAMES]) + (" …" if len(subjects) > MOST_NAMES else "")


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]
