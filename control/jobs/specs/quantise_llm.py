"""Quantisations of language models: weights alone, in fewer bits, stored as a checkpoint."""

from typing import Annotated, Literal

from msgspec import Meta

from control.jobs.specs.source import JobSource


class QuantiseLlmSpec(JobSource, frozen=True, kw_only=True, tag_field="type", tag="quantise_llm"):
    """Store a language model's weights in 8 or 4 bits, chosen so that its answers change little.

    data: the file with texts, or a folder of such; "rtn" measures perplexity with them.
    method: "rtn" rounds each weight to the nearest; "gptq" makes later weights of a layer carry
        the errors of earlier ones, "awq" scales the inputs that matter before rounding; both read
        `calibration`.
    bits: 8 has a scale per output, 4 a scale per 32 inputs.
    calibration: text that the model is to be good at, by its path below `data`; a document a
        line. "" where `data` is the file itself.
    held_out: text to measure perplexity on, likewise; "" takes the last fifth of `calibration`,
        which is then not calibrated with.
    samples: rows of calibration text; length: tokens of each.
    act_order: "gptq" begins with the inputs that are largest.
    damping: share of the mean of the Hessian's diagonal that is added to it.
    floor: percent by which perplexity may grow; above it no version is made.
    """

    data: str = ""
    method: Literal["rtn", "gptq", "awq"] = "gptq"
    bits: Literal[4, 8] = 4
    calibration: str = ""
    held_out: str = ""
    samples: Annotated[int, Meta(ge=1, le=4096)] = 64
    length: Annotated[int, Meta(ge=16, le=8192)] = 512
    act_order: bool = True
    damping: Annotated[float, Meta(gt=0.0, le=1.0)] = 0.01
    floor: Annotated[float, Meta(ge=0.0)] = 10.0
