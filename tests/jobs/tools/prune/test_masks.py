"""Which weights are set to zero."""

import pytest
import torch
from torch import nn

from control.jobs.specs.prune import PruneSpec
from jobs.tools.prune.channels import ChannelCutter, last_layers
from jobs.tools.prune.masks import MaskCutter, smallest, two_of_four
from jobs.tools.work import WorkRefused


def test_the_smallest_weights_of_all_layers_together_are_chosen() -> None:
    masks = smallest([torch.tensor([[1.0, -4.0]]), torch.tensor([[2.0, -3.0]])], 0.5)
    assert [one.tolist() for one in masks] == [[[0.0, 1.0]], [[0.0, 1.0]]]


def test_two_of_four_are_kept_along_the_inputs() -> None:
    mask = two_of_four(torch.tensor([[3.0, -1.0, 2.0, -5.0, 0.1, 0.2, 0.3, 0.4]]))
    assert mask.tolist() == [[1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0]]


def test_two_of_four_of_a_convolution_are_input_channels_at_one_place() -> None:
    weight = torch.randn(8, 12, 3, 3, generator=torch.Generator().manual_seed(0))
    mask = two_of_four(weight)
    fours = mask.movedim(1, -1).reshape(-1, 4)
    assert mask.shape == weight.shape
    assert (fours.sum(1) == 2).all()


def test_inputs_that_are_no_multiple_of_four_stay() -> None:
    assert bool((two_of_four(torch.randn(4, 3)) == 1).all())


def test_weights_stay_zero_while_others_are_trained() -> None:
    network = nn.Linear(8, 4)
    cutter = MaskCutter(network, PruneSpec(model="m", method="magnitude", amount=0.5))
    cutter.cut()
    with torch.no_grad():
        network.weight += 1.0
    cutter.apply()
    assert int((network.weight == 0).sum()) == 16


@pytest.mark.parametrize("after", [nn.Identity(), nn.Softmax(1)])
def test_the_layer_that_gives_the_outputs_is_found(after: nn.Module) -> None:
    network = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3), after)
    assert last_layers(network, torch.zeros(2, 4)) == [network[2]]


def test_inputs_of_transposed_convolutions_are_their_first_axis() -> None:
    network = nn.ConvTranspose2d(8, 3, 2)
    MaskCutter(network, PruneSpec(model="m", method="2:4")).cut()
    fours = (network.weight != 0).movedim(0, -1).reshape(-1, 4)
    assert bool((fours.sum(1) == 2).all())


def test_a_weight_that_two_layers_share_counts_once() -> None:
    network = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))
    network[1].weight = network[0].weight
    cutter = MaskCutter(network, PruneSpec(model="m", method="magnitude", amount=0.5))
    cutter.cut()
    left = sum(int((network[at].weight != 0).sum()) for at in (0, 2))
    assert left == 16
    assert len(cutter._weights) == 2


def test_stages_that_remove_nothing_are_fine_where_another_does() -> None:
    spec = PruneSpec(model="m", amount=0.5, stages=4, round_to=8)
    network = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
    cutter = ChannelCutter(network, (torch.zeros(2, 4),), spec)
    for _ in range(4):
        cutter.cut()
    assert network[0].out_features == 8


def test_a_network_that_loses_nothing_in_all_stages_is_refused() -> None:
    network = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
    spec = PruneSpec(model="m", amount=0.5, stages=2, keep=("0",))
    cutter = ChannelCutter(network, (torch.zeros(2, 4),), spec)
    cutter.cut()
    with pytest.raises(WorkRefused, match="no channel can be removed"):
        cutter.cut()
