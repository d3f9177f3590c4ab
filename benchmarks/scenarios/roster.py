"""Who takes part in a scenario: peers asked for, and a note for each that cannot."""

from contextlib import AbstractContextManager, ExitStack

from benchmarks.peers.seam import Peer, PeerUnavailable
from benchmarks.report import Report
from benchmarks.rounds import Plan


class Roster:
    """Starts peers into an `ExitStack`, which stops them when the scenario ends."""

    def __init__(self, plan: Plan, report: Report, stack: ExitStack) -> None:
        self._without, self._report, self._stack = plan.without, report, stack

    def enter(self, short_name: str, peer: AbstractContextManager[Peer]) -> list[Peer]:
        """The started peer, or nobody: left out on the command line, or not to be had here."""
        if short_name in self._without:
            return []
        try:
            return [self._stack.enter_context(peer)]
        except PeerUnavailable as reason:
            if str(reason) not in self._report.notes:
                self._report.notes.append(str(reason))
            return []
