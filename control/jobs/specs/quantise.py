"""Quantisations: weights, and activations, in fewer bits."""

from typing import Annotated, Literal

import msgspec

from control.jobs.specs.source import JobSource

Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
BatchSize = Annotated[int, msgspec.Meta(ge=1, le=1024)]
BatchSizes = Annotated[tuple[BatchSize, ...], msgspec.Meta(min_length=1, max_length=8)]


class QuantiseSpec(JobSource, frozen=True, kw_only=True, tag_field="type", tag="quantise"):
    """Store and compute the version in int8.

    data: an .npz with an array for each input, by its name, and rows in front: its path below the
        version's or the model's folder, or an absolute one below a folder of --job-data-dir.
    method: "static": weights and activations, by ranges that calibration rows show; "dynamic":
        weights, and activations by ranges found at each call; "auto": static where the network has
        convolutions, else dynamic.
    calibration: how static ranges are found. percentile: of "percentile", in percent.
    samples: rows that calibrate, at most. per_channel: a scale for each output channel.
    reduce_range: weights in 7 bits, for CPUs whose int8 sums overflow; "auto" asks the CPU's flags.
    exclude: names of nodes that stay as they are.
    most_excluded: how many further layers may stay as they are, the most sensitive first, where
        the result would miss the floor.
    labels: name of the data's array with the right label of each row; it may be missing.
    output: name of the output that is judged; "" for the first.
    compare: what that output is: "classes" compares argmax, "values" takes R2; "auto": classes if
        there are labels or it is a matrix of floats.
    floor: share of quality that must remain on held-out rows. With labels the accuracy may fall
        by at most 1 - floor; without, agreement with the source must be at least floor.
    evaluate: rows held out to judge, at most. batch_sizes: those whose latency is measured.
    """

    data: str = ""
    method: Literal["auto", "static", "dynamic"] = "auto"
    calibration: Literal["minmax", "entropy", "percentile"] = "minmax"
    percentile: Annotated[float, msgspec.Meta(gt=50.0, le=100.0)] = 99.99
    samples: Annotated[int, msgspec.Meta(ge=8, le=4096)] = 128
    per_channel: bool = True
    reduce_range: Literal["auto", "on", "off"] = "auto"
    exclude: tuple[str, ...] = ()
    most_excluded: Annotated[int, msgspec.Meta(ge=0, le=64)] = 3
    labels: str = "labels"
    output: str = ""
    compare: Literal["auto", "classes", "values"] = "auto"
    floor: Share = 0.99
    evaluate: Annotated[int, msgspec.Meta(ge=8, le=100_000)] = 512
    batch_sizes: BatchSizes = (1, 8)
