"""The ledger of memory: no device's grants pass its budget, and what is returned is there again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from backends.footprint import MemoryRequirement
from server.fleet.memory.ledger import MIB, MemoryGrant, MemoryLedger, OverBudget

BUDGETS = {"cpu": 1000, "cuda:0": 500}
DEVICES = ("cpu", "cuda:0", "cuda:1")


def test_a_load_beyond_the_budget_is_refused_naming_who_holds_what() -> None:
    ledger = MemoryLedger({"cpu": 100 * MIB})
    ledger.ask("cpu", "small version 1", MemoryRequirement(10 * MIB, 10 * MIB))
    ledger.ask("cpu", "large version 3", MemoryRequirement(60 * MIB, 60 * MIB))
    with pytest.raises(OverBudget) as refused:
        ledger.ask("cpu", "new version 1", MemoryRequirement(31 * MIB, 31 * MIB))
    assert str(refused.value) == (
        "new version 1 needs 31 MiB of cpu's memory, and of the budget of 100 MiB 30 MiB are left: "
        "large version 3 has 60 MiB, small version 1 has 10 MiB; unload one of them, or give more "
        "with --memory-budget=cpu=SIZE"
    )


def test_only_the_largest_holders_are_named_and_the_others_are_summed() -> None:
    ledger = MemoryLedger({"cpu": 10 * MIB})
    for number in range(7):
        ledger.ask("cpu", f"m{number} version 1", MemoryRequirement(MIB, MIB))
    with pytest.raises(OverBudget, match="and 3 more have 3 MiB; unload"):
        ledger.ask("cpu", "new version 1", MemoryRequirement(4 * MIB, 4 * MIB))


def test_what_no_budget_could_hold_is_told_so() -> None:
    with pytest.raises(OverBudget, match="the whole budget is 1 MiB; make it smaller"):
        MemoryLedger({"cpu": MIB}).ask("cpu", "huge version 1", MemoryRequirement(2 * MIB, 2 * MIB))


def test_what_is_only_wanted_leaves_half_of_what_is_free_to_others() -> None:
    ledger = MemoryLedger({"cpu": 1000})
    assert ledger.ask("cpu", "a", MemoryRequirement(200, 10_000)).bytes == 600
    assert ledger.ask("cpu", "b", MemoryRequirement(100, 10_000)).bytes == 250
    assert ledger.ask("cpu", "c", MemoryRequirement(100, 110)).bytes == 110


def test_a_device_without_a_budget_grants_all_that_is_wanted() -> None:
    assert MemoryLedger({"cpu": 1}).ask("cuda:0", "a", MemoryRequirement(5, 50)).bytes == 50


def test_those_with_most_to_spare_are_asked_first() -> None:
    ledger = MemoryLedger({"cpu": 1000})
    some, most = (ledger.ask("cpu", name, MemoryRequirement(100, 100 + more)) for name, more in (
        ("some", 50), ("most", 90),
    ))  # fmt: skip
    ledger.ask("cpu", "none", MemoryRequirement(300, 300))
    assert [grant.number for grant in ledger.elastic("cpu")] == [most.number, some.number]
    assert ledger.lacking("cpu", MemoryRequirement(400, 400)) == 40


def test_what_was_given_back_is_offered_again_once_there_is_room() -> None:
    ledger = MemoryLedger({"cpu": 1000})
    elastic = ledger.ask("cpu", "elastic", MemoryRequirement(100, 500))
    other = ledger.ask("cpu", "other", MemoryRequirement(500, 500))
    assert ledger.offers() == []
    elastic = ledger.correct(elastic, 100)
    third = ledger.ask("cpu", "third", MemoryRequirement(400, 400))
    assert ledger.offers() == []
    ledger.release(other)
    ledger.release(third)
    assert [(offer.grant, offer.bytes) for offer in ledger.offers()] == [(elastic, 400)]


def test_what_only_a_load_took_is_offered_to_nobody_and_the_rest_to_who_can_use_it() -> None:
    ledger = MemoryLedger({"cpu": 10_000})
    cache = ledger.correct(ledger.ask("cpu", "cache", MemoryRequirement(1000, 3000)), 1000)
    for number in range(20):
        ledger.settle(ledger.ask("cpu", f"session {number}", MemoryRequirement(134, 134)), 50)
    assert [(offer.grant, offer.bytes) for offer in ledger.offers()] == [(cache, 2000)]
    fewer = ledger.correct(ledger.ask("cpu", "fewer", MemoryRequirement(5000, 5000)), 100)
    offers = ledger.offers(lambda grant: grant.number != fewer.number)
    assert [offer.grant for offer in offers] == [cache]


def test_a_correction_after_the_release_changes_nothing() -> None:
    ledger = MemoryLedger({"cpu": 10})
    grant = ledger.ask("cpu", "a", MemoryRequirement(4, 4))
    ledger.release(grant)
    ledger.correct(grant, 9)
    ledger.release(grant)
    assert ledger.free("cpu") == 10


@given(st.lists(st.tuples(st.integers(0, 600), st.integers(0, 600)), max_size=30))
def test_a_refusal_changes_nothing_and_says_truly_that_there_is_no_room(
    needs: list[tuple[int, int]],
) -> None:
    ledger = MemoryLedger({"cpu": 1000})
    for number, (least, more) in enumerate(needs):
        free = ledger.free("cpu")
        assert free is not None
        need = MemoryRequirement(least, least + more)
        try:
            grant = ledger.ask("cpu", str(number), need)
        except OverBudget:
            assert least > free
            assert ledger.free("cpu") == free
            assert ledger.lacking("cpu", need) == least - free
        else:
            assert need.least <= grant.bytes <= need.wanted
            assert ledger.free("cpu") == free - grant.bytes


class Books(RuleBasedStateMachine):
    """Any run of asks, releases and give-backs, against a plain table."""

    grants = Bundle("grants")

    def __init__(self) -> None:
        super().__init__()
        self.ledger = MemoryLedger(BUDGETS)
        self.table: dict[int, MemoryGrant] = {}

    @rule(
        target=grants,
        device=st.sampled_from(DEVICES),
        least=st.integers(0, 400),
        more=st.integers(0, 400),
    )
    def ask(self, device: str, least: int, more: int) -> MemoryGrant | None:
        try:
            grant = self.ledger.ask(device, "holder", MemoryRequirement(least, least + more))
        except OverBudget:
            return None
        self.table[grant.number] = grant
        return grant

    @rule(grant=consumes(grants))
    def release(self, grant: MemoryGrant | None) -> None:
        if grant is not None:
            self.ledger.release(grant)
            del self.table[grant.number]

    @rule(grant=consumes(grants), target=grants, share=st.floats(0, 1))
    def give_back(self, grant: MemoryGrant | None, share: float) -> MemoryGrant | None:
        if grant is None:
            return None
        spare = int((grant.bytes - grant.least) * share)
        self.table[grant.number] = self.ledger.correct(grant, grant.bytes - spare)
        return self.table[grant.number]

    @rule()
    def take_again(self) -> None:
        for offer in self.ledger.offers():
            free = self.ledger.free(offer.grant.device)
            assert free is None or offer.bytes <= free
            grown = self.ledger.correct(offer.grant, offer.grant.bytes + offer.bytes)
            assert grown.bytes <= grown.full
            self.table[grown.number] = grown

    @invariant()
    def grants_are_those_of_the_table_and_within_budget(self) -> None:
        held = {grant.number: grant for one in self.ledger.accounts() for grant in one.grants}
        assert held.keys() == self.table.keys()
        for account in self.ledger.accounts():
            assert account.budget is None or account.granted <= account.budget
            free = self.ledger.free(account.device)
            assert free is None or free == account.budget - account.granted


TestBooks = pytest.mark.filterwarnings("default")(Books.TestCase)
