"""The memory lent to unfinished messages and unread answers: who gets how much of it."""

from hypothesis import given
from hypothesis import strategies as st

from server.buffers import CONNECTION_BYTES, RESERVE_BYTES, BufferBudget

MIB = 2**20


def test_a_connection_gets_no_more_than_it_leaves_free():
    budget = BufferBudget(100 * MIB + 2 * CONNECTION_BYTES)
    one, other = budget.open(), budget.open()
    assert one.charge(51 * MIB) != ""
    assert one.charge(50 * MIB) == ""
    assert other.charge(26 * MIB) != ""
    assert other.charge(25 * MIB) == ""
    assert one.charge(1) != ""


def test_a_refusal_names_the_setting_and_the_figures():
    account = BufferBudget(MIB).open()
    refusal = account.charge(2 * MIB)
    assert f"{2 * MIB} bytes do not fit" in refusal
    assert f"{CONNECTION_BYTES} of {MIB} (--buffer-limit)" in refusal


def test_a_connection_that_holds_little_is_served_however_full_the_server_is():
    budget = BufferBudget(3 * CONNECTION_BYTES)
    full, little = budget.open(), budget.open()
    full.hold(10 * MIB)
    assert little.charge(RESERVE_BYTES) == ""
    assert little.charge(1) != ""


def test_a_connection_that_does_not_fit_counts_for_nothing():
    budget = BufferBudget(CONNECTION_BYTES)
    first, second = budget.open(), budget.open()
    assert (first.open, second.open) == (True, False)
    second.hold(MIB)
    second.close()
    first.close()
    assert budget.held == 0


EVENTS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.sampled_from(["charge", "hold", "release", "close"]),
        st.integers(0, 3 * MIB),
    ),
    max_size=60,
)


@given(EVENTS)
def test_after_any_events_the_sum_is_right_and_all_comes_back(events):
    budget = BufferBudget(8 * MIB)
    accounts = [budget.open() for _ in range(4)]
    charged = [0] * 4
    forced = False
    for who, event, size in events:
        account = accounts[who]
        if event == "close":
            account.close()
        elif not account.open:
            continue
        elif event == "charge":
            charged[who] += 0 if account.charge(size) else size
        elif event == "hold":
            account.hold(size)
            charged[who] += size
            forced = True
        else:
            account.release(min(size, charged[who]))
            charged[who] -= min(size, charged[who])
        beyond = [
            max(0, n - RESERVE_BYTES) for n, a in zip(charged, accounts, strict=True) if a.open
        ]
        assert budget.held == sum(beyond) + CONNECTION_BYTES * len(beyond)
        assert forced or budget.held <= budget.limit
    for account in accounts:
        account.close()
    assert budget.held == 0
