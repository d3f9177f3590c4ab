"""Core tokens: who may run, in which order, and how long one may hold the house up."""

from schedulers.policy.cores import BRIEF_NS, PATIENCE_NS, CoreTokens


class Model:
    def wake(self) -> None: ...


def test_running_work_never_exceeds_the_cores() -> None:
    tokens, a, b, c = CoreTokens(2), Model(), Model(), Model()
    assert tokens.take(a, 1, 0)
    assert tokens.take(b, 1, 0)
    assert tokens.take(c, 1, 0) is None
    assert tokens.free == 0


def test_tokens_go_to_who_waits_longest() -> None:
    tokens, a, b, c = CoreTokens(1), Model(), Model(), Model()
    lease = tokens.take(a, 1, 0)
    assert tokens.take(b, 1, 1) is None
    assert tokens.take(c, 1, 2) is None
    assert lease is not None
    tokens.give(lease)
    assert tokens.next() is b
    assert tokens.take(a, 1, 3) is None
    assert tokens.take(b, 1, 3) is not None
    assert tokens.next() is c


def test_who_leaves_the_line_no_longer_blocks_it() -> None:
    tokens, a, b, c = CoreTokens(1), Model(), Model(), Model()
    lease = tokens.take(a, 1, 0)
    tokens.take(b, 1, 0)
    tokens.take(c, 1, 0)
    tokens.leave(b)
    assert lease is not None
    tokens.give(lease)
    assert tokens.take(c, 1, 1) is not None


def test_work_wider_than_the_machine_takes_all_of_it() -> None:
    tokens = CoreTokens(2)
    assert tokens.take(Model(), 16, 0) is not None
    assert tokens.free == 0


def test_work_that_uses_no_core_never_waits() -> None:
    tokens = CoreTokens(1)
    tokens.take(Model(), 1, 0)
    lease = tokens.take(Model(), 0, 0)
    assert lease is not None
    tokens.give(lease)
    assert tokens.free == 0


def test_an_execution_that_hangs_does_not_stop_the_house() -> None:
    tokens, hung, waiting = CoreTokens(1), Model(), Model()
    lease = tokens.take(hung, 1, 0)
    assert tokens.take(waiting, 1, PATIENCE_NS - 1) is None
    assert tokens.overdue_ns() == PATIENCE_NS
    assert tokens.take(waiting, 1, PATIENCE_NS) is not None
    assert lease is not None
    tokens.give(lease)
    assert tokens.free == 0


def test_brief_work_passes_long_work_but_only_so_much_of_it_at_once() -> None:
    tokens, long, brief = CoreTokens(1), Model(), Model()
    assert tokens.take(long, 1, 0, 50 * BRIEF_NS)
    lease = tokens.take(brief, 1, 0, BRIEF_NS // 20)
    assert lease is not None
    assert tokens.take(brief, 1, 0, BRIEF_NS // 20) is None
    tokens.give(lease)
    assert tokens.free == 0
    assert tokens.take(brief, 1, 0, BRIEF_NS // 20) is not None
    assert tokens.take(Model(), 1, 0, BRIEF_NS) is None
