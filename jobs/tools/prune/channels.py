"""Structured pruning: channels with the smallest weights are removed, with all that they feed."""

from typing import Any

import torch
import torch_pruning
from torch import Tensor, nn

from control.jobs.specs.prune import PruneSpec
from jobs.tools.networks.files import first_line
from jobs.tools.work import refuse

_CUTTABLE = (nn.Linear, nn.modules.conv._ConvNd)


class ChannelCutter:
    """Cuts a network in place, one stage at a time; the last layers keep their outputs."""

    def __init__(self, network: nn.Module, example: tuple[Tensor, ...], spec: PruneSpec) -> None:
        self._network = network
        self._given = example[0] if len(example) == 1 else example
        self._shapes = self._output_shapes()
        self._parameters = _size(network)
        self._left = spec.stages
        kept = _named(network, spec.keep)
        try:
            self._pruner = self._make(spec, kept)
        except Exception as error:  # noqa: BLE001 - it traces the user's code
            self._refuse(error)

    def cut(self) -> None:
        """Remove one stage's channels, which may be none where they are removed several at a time.

        Refuses a network that does not run afterwards, and one that lost nothing in all stages.
        """
        try:
            self._pruner.step()
            shapes = self._output_shapes()
        except Exception as error:  # noqa: BLE001 - it runs the user's code
            self._refuse(error)
        if shapes != self._shapes:
            refuse(
                f"without these channels the network's outputs would be {shapes} instead of "
                f"{self._shapes}; name the layers that give them in 'keep'"
            )
        self._left -= 1
        if not self._left and _size(self._network) == self._parameters:
            refuse(
                "no channel can be removed: every layer is kept, gives the outputs, or is too "
                "narrow for 'amount' and 'round_to'"
            )

    def _make(self, spec: PruneSpec, kept: list[nn.Module]) -> Any:
        return torch_pruning.pruner.MagnitudePruner(
            self._network,
            self._given,
            importance=torch_pruning.importance.GroupMagnitudeImportance(p=2),
            pruning_ratio=spec.amount,
            max_pruning_ratio=max(0.9, spec.amount),
            iterative_steps=spec.stages,
            global_pruning=spec.across,
            round_to=spec.round_to,
            ignored_layers=[*kept, *last_layers(self._network, self._given)],
        )

    def _output_shapes(self) -> list[list[int]]:
        inputs = self._given if isinstance(self._given, tuple) else (self._given,)
        with torch.no_grad():
            found = self._network.eval()(*inputs)
        parts = found if isinstance(found, (tuple, list)) else (found,)
        return [list(one.shape) for one in parts]

    def _refuse(self, error: Exception) -> None:
        refuse(
            f"channels of this network cannot be removed: {type(error).__name__}: "
            f"{first_line(error)}; method 'magnitude' takes any network"
        )


def last_layers(network: nn.Module, given: Any) -> list[nn.Module]:
    """Layers with weights whose outputs reach the network's outputs through no other such layer."""
    graph = torch_pruning.DependencyGraph().build_dependency(network, example_inputs=given)
    return [
        module
        for module, node in graph.module2node.items()
        if isinstance(module, _CUTTABLE) and _reaches_end(node)
    ]


def _reaches_end(node: Any) -> bool:
    waiting, seen = [node], {id(node)}
    while waiting:
        current = waiting.pop()
        if not current.outputs:
            return True
        for after in current.outputs:
            if id(after) not in seen and not isinstance(after.module, _CUTTABLE):
                seen.add(id(after))
                waiting.append(after)
    return False


def _named(network: nn.Module, names: tuple[str, ...]) -> list[nn.Module]:
    modules = dict(network.named_modules())
    for name in names:
        if name not in modules:
            there = ", ".join(one for one, it in modules.items() if isinstance(it, _CUTTABLE))
            refuse(f"keep names '{name}', which the network does not have; it has {there}")
    return [part for name in names for part in modules[name].modules()]


def _size(network: nn.Module) -> int:
    return sum(one.numel() for one in network.parameters())
