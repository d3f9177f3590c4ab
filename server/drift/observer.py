"""Which requests are counted: of models whose drift is watched, a share of them, up to a rate.

On the event loop a request costs a look at its model, and, if it is chosen, small copies of its
tensors; a thread makes counts of them. While nothing is watched, `on` is False: nothing is asked.
"""

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

from control.desired import DriftRule
from control.drift.points import VersionDrift
from control.drift.profile import FILE, LARGEST_BYTES
from schedulers.reply import Reply
from schedulers.request import InferRequest
from server.drift.counting import VersionCounts
from server.drift.features import CopiedTensor, copied_tensors, plan_of
from server.signature import Signature

MOST_VERSIONS = 8
"""Counted of one model at once."""

MOST_WAITING = 512
"""Requests whose copies wait for the thread, which comes every second; more are not counted."""

FolderOf = Callable[[str, int], Path | None]
"""The folder of a loaded version."""


class DriftObserver:
    """All of a gateway's. `changed` is called when `on` is another."""

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        self.on = False
        self.missed = 0
        """Requests that were chosen and not counted: the thread was late."""
        self._changed = changed
        self._models: dict[str, _CountedModel] = {}
        self._waiting: deque[tuple[_CountedVersion, list[CopiedTensor]]] = deque()
        self._counting = threading.Lock()

    def use(self, rules: Iterable[DriftRule]) -> None:
        """Watch these models from now on; one whose rule is as it was goes on counting."""
        now = {rule.model: rule for rule in rules}
        self._models = {
            name: old
            if (old := self._models.get(name)) is not None and old.rule == rule
            else _CountedModel(rule)
            for name, rule in now.items()
        }
        if self.on != bool(now):
            self.on = bool(now)
            self._changed()

    def begin(self, request: InferRequest, signature: Signature) -> "Observation | None":
        """Before a request is submitted; None if it is not counted. A client may change its shared
        memory: what is needed of the inputs is copied here."""
        model = self._models.get(request.model)
        if model is None or random.random() * 100 >= model.rule.percent:
            return None
        version = model.version(request.version, signature)
        if not version.may_take(time.monotonic()):
            return None
        tensors = copied_tensors(version.plan.inputs, request.inputs)
        return Observation(self, version, tensors, signature.decoupled)

    def keep(self, version: "_CountedVersion", tensors: list[CopiedTensor]) -> None:
        if len(self._waiting) >= MOST_WAITING:
            self.missed += 1
            return
        self._waiting.append((version, tensors))

    def count(self) -> None:
        """Make counts of what waits; on any thread."""
        with self._counting:
            found: dict[_CountedVersion, list[list[CopiedTensor]]] = {}
            while self._waiting:
                version, tensors = self._waiting.popleft()
                found.setdefault(version, []).append(tensors)
            for version, requests in found.items():
                version.counts.add(*requests)

    def take(self, folder_of: FolderOf) -> tuple[VersionDrift, ...]:
        """What was counted since the last time; on any thread. `folder_of`: for profiles."""
        self.count()
        with self._counting:
            found = []
            for model in list(self._models.values()):
                for version in list(model.versions.values()):
                    row = version.taken(model.rule.profile, folder_of)
                    if row is not None:
                        found.append(row)
            return tuple(found)


class Observation:
    """One request on its way; counted when it is answered."""

    __slots__ = ("_decoupled", "_observer", "_tensors", "_version")

    def __init__(
        self,
        observer: DriftObserver,
        version: "_CountedVersion",
        tensors: list[CopiedTensor],
        decoupled: bool,
    ) -> None:
        self._observer = observer
        self._version = version
        self._tensors = tensors
        self._decoupled = decoupled

    def ended(self, reply: Reply) -> None:
        """A request that failed is not counted: it may have been nonsense."""
        if reply.error is not None:
            return
        answer = None if self._decoupled else reply.unread
        if answer is not None:
            self._tensors += copied_tensors(self._version.plan.outputs, answer.outputs)
        self._observer.keep(self._version, self._tensors)


class _CountedModel:
    def __init__(self, rule: DriftRule) -> None:
        self.rule = rule
        self.versions: dict[int, _CountedVersion] = {}

    def version(self, number: int, signature: Signature) -> "_CountedVersion":
        """Of one too many the oldest gives way. One that was loaded anew may have another
        signature."""
        found = self.versions.get(number)
        if found is not None and found.signature is signature:
            return found
        if found is None and len(self.versions) >= MOST_VERSIONS:
            self.versions.pop(min(self.versions))
        found = self.versions[number] = _CountedVersion(signature, self.rule)
        return found


class _CountedVersion:
    def __init__(self, signature: Signature, rule: DriftRule) -> None:
        self.signature = signature
        self.plan = plan_of(signature, rule.labels)
        self.counts = VersionCounts(signature.model, signature.version, self.plan, rule.names)
        self._told = False
        self._per_s = rule.per_s
        self._most = max(1.0, rule.per_s)
        self._credit = self._most
        self._credited_s = time.monotonic()

    def may_take(self, now_s: float) -> bool:
        """Whether one more fits into this second; if so it counts."""
        passed_s, self._credited_s = now_s - self._credited_s, now_s
        self._credit = min(self._most, self._credit + passed_s * self._per_s)
        if self._credit < 1:
            return False
        self._credit -= 1
        return True

    def taken(self, profile: bool, folder_of: FolderOf) -> VersionDrift | None:
        found = self.counts.taken()
        if found is None or not profile or self._told:
            return found
        self._told = True
        text = _profile(folder_of(self.signature.model, self.signature.version))
        return VersionDrift(
            found.model, found.version, found.requests, found.features, found.left_out, text
        )


def _profile(folder: Path | None) -> str:
    """The text of the profile in a version's folder or its model's; "" of none."""
    for place in () if folder is None else (folder, folder.parent):
        try:
            with open(place / FILE, "rb") as file:
                return file.read(LARGEST_BYTES + 1).decode("utf-8", "replace")
        except OSError:
            continue
    return ""
