"""Distillations: a smaller network that learns the answers of a larger one."""

from typing import Annotated, Literal

from msgspec import Meta

from control.jobs.specs.training import TrainingSource


class DistilSpec(TrainingSource, frozen=True, kw_only=True, tag_field="type", tag="distil"):
    """Train a smaller network, which the recipe describes, to answer as the version does.

    teacher: "version" asks the version's own ONNX file, "recipe" the recipe's `network`.
    temperature: what logits of both are divided by before they are compared.
    hard: the share of the loss that is against labels, for which the recipe's training batches
        must have some; 0 needs none.
    """

    teacher: Literal["version", "recipe"] = "version"
    temperature: Annotated[float, Meta(gt=0.0, le=100.0)] = 4.0
    hard: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.0
    epochs: Annotated[int, Meta(ge=1, le=10_000)] = 20
