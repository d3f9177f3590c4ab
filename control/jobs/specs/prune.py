"""Prunings: weights or channels removed, and the rest trained again."""

from typing import Annotated, Literal

from msgspec import Meta

from control.jobs.specs.training import TrainingSource


class PruneSpec(TrainingSource, frozen=True, kw_only=True, tag_field="type", tag="prune"):
    """Remove weights or channels from the version, and train what is left.

    method: "structured" removes whole channels, so that the network is smaller and faster;
        "magnitude" sets the smallest weights of the network to zero, "2:4" the two smallest of
        every four along the inputs. Zeros give no speed on a CPU.
    amount: the share of channels ("structured") or of weights ("magnitude") to remove; "2:4"
        always removes half.
    stages: cuts, each followed by its part of the epochs; more keep more accuracy.
    across: rank channels of all layers together, rather than remove the same share of each.
    round_to: channels are left in multiples of this.
    keep: names of layers (as in `named_modules`) that are not cut; the last ones never are.
    """

    method: Literal["structured", "magnitude", "2:4"] = "structured"
    amount: Annotated[float, Meta(gt=0.0, lt=1.0)] = 0.5
    stages: Annotated[int, Meta(ge=1, le=20)] = 1
    across: bool = False
    round_to: Annotated[int, Meta(ge=1, le=256)] = 1
    keep: tuple[str, ...] = ()
