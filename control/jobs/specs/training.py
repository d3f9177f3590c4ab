"""Fields of jobs that train a network by a recipe."""

from typing import Annotated

from msgspec import Meta

from control.jobs.specs.source import JobSource


class TrainingSource(JobSource, frozen=True, kw_only=True):
    """A version, and how a network is trained by the recipe beside it (docs/recipes.md).

    recipe: the Python file, by its path below the version's folder or below the data folder.
    data: what the recipe reads: a file or folder; "" where it needs none.
    epochs: passes over the training data.
    learning_rate: of AdamW, at its highest; it falls along a cosine to a hundredth.
    floor: percentage points of held-out accuracy that may be lost; above it no version is made.
    batch: rows of the call whose latency is measured, on one thread.
    rounds: calls of each network that are measured, in turn.
    """

    NEEDS_TRUST = True

    recipe: Annotated[str, Meta(min_length=1, max_length=200)] = "recipe.py"
    data: str = ""
    epochs: Annotated[int, Meta(ge=0, le=10_000)] = 5
    learning_rate: Annotated[float, Meta(gt=0.0, le=10.0)] = 1e-3
    floor: Annotated[float, Meta(ge=0.0, le=100.0)] = 1.0
    batch: Annotated[int, Meta(ge=1, le=4096)] = 32
    rounds: Annotated[int, Meta(ge=3, le=1000)] = 30
