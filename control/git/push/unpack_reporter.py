"""A push that git itself refuses, before any hook of ours: told in our words, and kept as a row."""

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from control.deployments.pushes import PushFacts
from control.errors import ControlError
from control.git.push.pre_receive import MOST_FACTS, NOTHING_CHANGED, PushContext, refuse_each
from control.sql.database import Actor, Database
from repository.findings import Finding
from repository.git.commands import Commands
from repository.git.report import ReceiveReport
from repository.git.rules import RefUpdate
from repository.git.text import plain_text
from repository.lfs.threads import in_thread

_DAMAGED = "push again; if it comes again, 'git fsck --full' in your clone names what is damaged"

_BEFORE_HOOKS = {
    "missing necessary objects": ("E415", f"the push lacks objects that it needs; {_DAMAGED}"),
    "shallow update not allowed": (
        "E416",
        "the clone that was pushed from is shallow and lacks history; 'git fetch --unshallow', "
        "then push again",
    ),
}
"""What git says of a single ref that its hooks are not asked about."""

_OBJECT = re.compile(r"object ([0-9a-f]{40,64}): (\w+): (.+)")
_OF_A_TREE = {
    "hasDot": "E402",
    "hasDotdot": "E402",
    "fullPathname": "E402",
    "emptyName": "E402",
    "hasDotgit": "E403",
}
_IN_PACKS = (
    (
        re.compile(r"out of memory|cannot allocate|malloc failed", re.IGNORECASE),
        "E413",
        "an object of the push takes more memory to unpack than git may have; put large files "
        "into Git LFS (git lfs track)",
    ),
    (
        re.compile(
            r"no space left|disk quota|read-only file system|unable to write", re.IGNORECASE
        ),
        "E417",
        "the server has no disk space for the push; tell its operator, and push again later",
    ),
)

_RACE = re.compile(
    r"failed to update ref|incorrect old value|cannot lock ref|already exists|is at .* but expected"
)
"""git's reasons for a ref that is not where this push has seen it."""

_log = logging.getLogger(__name__)


class UnpackReporter:
    """Reports the end of git's part of a push; `pack_bytes`: what its repository takes at once."""

    def __init__(
        self, database: Database, pushing: PushContext, commands: Commands, pack_bytes: int
    ) -> None:
        self._database = database
        self._pushing = pushing
        self._commands = commands
        self._pack_bytes = pack_bytes

    async def explain(self, report: ReceiveReport) -> Sequence[str]:
        """The lines that the pusher is to read; none when a hook of ours has had its say."""
        findings = findings_of(report, self._pack_bytes)
        if not findings:
            return list(lost_races(report))
        failed = self._commands.updates
        if report.unpacked == "ok":
            failed = [one for one in failed if report.refused.get(one.ref) in _BEFORE_HOOKS]
        return await self.refuse(findings, failed)

    async def refuse(self, findings: Iterable[Finding], failed: Sequence[RefUpdate]) -> list[str]:
        """Keep the refusal as a row per ref; what the pusher is to read."""
        lines = [str(finding) for finding in findings]
        if len(failed) == len(self._commands.updates):
            lines.append(NOTHING_CHANGED.format(self._pushing.repository))
        try:
            await in_thread(self._keep, failed, "\n".join(lines))
        except ControlError as error:  # it is refused all the same
            _log.warning(
                "a refused push to '%s' could not be recorded: %s", self._pushing.repository, error
            )
        return lines

    def _keep(self, failed: Sequence[RefUpdate], report: str) -> None:
        pushing = self._pushing
        actor = Actor(pushing.principal.id, "git", pushing.address)
        with self._database.change(actor) as tx:
            refuse_each(tx, pushing, failed, [PushFacts()] * len(failed), report)


def lost_races(report: ReceiveReport) -> Iterable[str]:
    """What to do about refs that another push moved after git had compared them for this one: git
    itself says no more than that it failed. Pure."""
    for ref, why in list(report.refused.items())[:MOST_FACTS]:
        if _RACE.search(why):
            branch = plain_text(ref.removeprefix("refs/heads/"), 250)
            yield (
                f"another push moved {branch} while this one was under way, and nothing of this "
                f"one was kept there; fetch it and push again: git pull --rebase origin {branch}, "
                "then git push"
            )


def findings_of(report: ReceiveReport, pack_bytes: int) -> list[Finding]:
    """What git refused before it asked a hook. Pure; none when it refused nothing."""
    if report.unpacked == "":
        return []
    if report.unpacked == "ok":
        return list(_of_refs(report.refused))
    return _of_pack(" / ".join(report.words), pack_bytes) or [_unknown(report)]


def _of_refs(refused: Mapping[str, str]) -> Iterable[Finding]:
    for ref, why in list(refused.items())[:MOST_FACTS]:
        if why in _BEFORE_HOOKS:
            code, message = _BEFORE_HOOKS[why]
            yield Finding(Path(plain_text(ref, 250)), 0, 0, code, message)


def _of_pack(words: str, pack_bytes: int) -> list[Finding]:
    if "pack exceeds maximum allowed size" in words:
        reason = (
            f"the push has more than the {pack_bytes} bytes this repository takes at once; put "
            "large files into Git LFS (git lfs track), push in smaller steps (git push origin "
            "COMMIT:BRANCH), or have max_pack_bytes raised (modelyard repo change --budget)"
        )
        return [Finding(Path("pack"), 0, 0, "E413", reason)]
    if found := _OBJECT.search(words):
        return [_of_object(found[1], found[2], found[3].split(" / ")[0])]
    return [
        Finding(Path("pack"), 0, 0, code, message)
        for pattern, code, message in _IN_PACKS
        if pattern.search(words)
    ][:1]


def _of_object(oid: str, kind: str, says: str) -> Finding:
    where = f"'git rev-list --objects --all | grep {oid[:12]}' tells where it is"
    path, says = Path("object", oid[:12]), plain_text(says, 200)
    if kind in _OF_A_TREE:
        reason = f"is a folder that {says} ({kind}); rename what is in it; {where}"
        return Finding(path, 0, 0, _OF_A_TREE[kind], reason)
    if kind.startswith("gitmodules"):
        reason = f"is a .gitmodules that git does not trust: {says} ({kind}); remove it; {where}"
        return Finding(path, 0, 0, "E401", reason)
    reason = (
        f"is refused by git's own check: {says} ({kind}); rewrite the commit that has it; {where}"
    )
    return Finding(path, 0, 0, "E414", reason)


def _unknown(report: ReceiveReport) -> Finding:
    words = plain_text("; ".join(report.words[-3:]) or report.unpacked, 300)
    return Finding(Path("pack"), 0, 0, "E415", f"git cannot unpack the push ({words}); {_DAMAGED}")
