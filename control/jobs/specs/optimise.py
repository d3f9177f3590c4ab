"""Optimisations: the same function by a simpler graph."""

from typing import Annotated, Literal

import msgspec

from control.jobs.specs.quantise import BatchSizes
from control.jobs.specs.source import JobSource

Tolerance = Annotated[float, msgspec.Meta(ge=0.0)]


class OptimiseSpec(JobSource, frozen=True, kw_only=True, tag_field="type", tag="optimise"):
    """Simplify the version's graph, and store its weights in another precision if asked.

    weights: "keep", or "fp16" and "bf16": matrices of weights are stored in half of the bytes, and
        computed with in float32 as before.
    tolerance: largest difference from the source, as a share of the output's largest value, that
        is accepted; None: 1e-5, with fp16 0.01, with bf16 0.05.
    data: an .npz with an array for each input, by its name, and rows in front: its path below the
        version's or the model's folder, or an absolute one below a folder of --job-data-dir.
    rows: numbers of rows that are compared; they come from the data file, or are made up.
    batch_sizes: those whose latency is measured.
    """

    data: str = ""
    weights: Literal["keep", "fp16", "bf16"] = "keep"
    tolerance: Tolerance | None = None
    rows: BatchSizes = (1, 5)
    batch_sizes: BatchSizes = (1, 8)
