"""The states that an instance keeps of its sequences."""

import numpy as np
import pytest

from backends.errors import FaultyModel
from backends.sequences.states import SlotStates, StateTensor
from repository.config.tensors import Array


def states(*dims: int, batched: bool = True) -> SlotStates:
    shape = tuple(1 if dim == -1 else dim for dim in dims)
    initial: Array = np.zeros((1, *shape) if batched else shape, np.float32)
    return SlotStates([StateTensor("IN", "OUT", initial, dims)], batched, "model 'm' version 1")


def filled(value: float, *shape: int) -> dict[str, Array]:
    return {"OUT": np.full(shape, value, np.float32)}


@pytest.mark.parametrize("batched", [True, False])
def test_what_is_given_out_may_be_written_to(batched: bool) -> None:
    one = states(2, batched=batched)
    one.row(0, True)["IN"] += 1
    assert not one.row(0, True)["IN"].any()
    one.keep(filled(3, *((1, 2) if batched else (2,))), (0,), (0,), 1, ())
    one.row(0, False)["IN"] += 1
    assert (one.row(0, False)["IN"] == 3).all()


def test_what_the_same_sequences_get_again_may_be_written_to() -> None:
    two = states(2)
    two.keep(filled(3, 2, 2), (0, 1), (0, 1), 2, ())
    for _ in range(2):
        again = two.gather((0, 1), (False, False), (0, 1), 2)["IN"]
        assert (again == 3).all()
        again += 1


def test_a_state_of_another_shape_is_refused_and_the_one_before_stays() -> None:
    one = states(-1, 2)
    one.keep(filled(3, 1, 5, 2), (0,), (0,), 1, ())
    with pytest.raises(FaultyModel) as caught:
        one.keep(filled(4, 1, 5, 3), (0,), (0,), 1, ())
    assert str(caught.value) == (
        "model 'm' version 1 is faulty: it returned state 'OUT' with shape [1, 5, 3], its config "
        "says [1, -1, 2]"
    )
    assert one.shapes(0, False) == ((1, 5, 2),)
    assert (one.row(0, False)["IN"] == 3).all()


def test_a_row_of_nobody_has_the_shape_of_its_neighbours_states() -> None:
    two = states(-1)
    two.keep(filled(3, 1, 4), (1,), (0,), 1, ())
    assert two.gather((1,), (False,), (1,), 2)["IN"].tolist() == [[0] * 4, [3] * 4]


def test_the_bytes_that_are_kept_are_known_until_nothing_is() -> None:
    one = states(2)
    one.keep(filled(3, 4, 2), (0, 1, 2, 3), (0, 1, 2, 3), 4, ())
    assert one.size_bytes == 32
    one.drop((0, 1))
    assert one.size_bytes == 32  # half of the rows still count
    one.drop((2,))
    assert one.size_bytes == 8
    one.keep(filled(4, 1, 2), (3,), (0,), 1, ())
    assert one.size_bytes == 8
    one.drop((3,))
    assert one.size_bytes == 0
