"""The defaults Triton writes into every config, and what a completed config must have."""

from pathlib import Path

from repository.config.finding_report import FindingReport
from repository.config.positions import Positions
from repository.config.validate import validate
from repository.findings import Finding
from repository.model import ModelConfig

SEQUENCE_IDLE_US = 1_000_000
"""How long a sequence may be idle unless its config says otherwise (Triton's default)."""


def normalise(config: ModelConfig) -> ModelConfig:
    """A copy of `config` with Triton's defaults filled in, as `/config` shows them."""
    made = ModelConfig()
    made.CopyFrom(config)
    if made.version_policy.WhichOneof("policy_choice") is None:
        made.version_policy.latest.num_versions = 1
    batching = made.HasField("dynamic_batching") and made.max_batch_size > 0
    if batching and not made.dynamic_batching.preferred_batch_size:
        made.dynamic_batching.preferred_batch_size.append(made.max_batch_size)
    if made.HasField("sequence_batching"):
        sequences = made.sequence_batching
        idle_us = sequences.max_sequence_idle_microseconds or SEQUENCE_IDLE_US
        sequences.max_sequence_idle_microseconds = idle_us
    if not made.HasField("ensemble_scheduling"):
        for buffer in ("input_pinned_memory", "output_pinned_memory"):
            if not made.optimization.HasField(buffer):
                getattr(made.optimization, buffer).enable = True
    return made


def validate_complete(config: ModelConfig, positions: Positions | None = None) -> list[Finding]:
    """Every rule a completed config breaks; nobody will fill anything in after this.

    Covers `validate`'s rules, a backend, and at least one input and output with type and dims; a
    python model needs no input (a clock, a generator of random numbers).
    Whether this server *has* that backend is the registry's business.
    """
    positions = positions or Positions(Path(config.name, "config.pbtxt"))
    findings = validate(config, positions, complete=True)
    report = FindingReport(positions, complete=True)
    if not config.backend and config.platform != "ensemble":
        accepted = "name one with backend, or put a known file in the version folder"
        report.add("backend", "E151", f"model '{config.name}' has no backend; {accepted}")
    for kind in ("input", "output"):
        needed = kind == "output" or config.backend != "python"
        if needed and not len(getattr(config, kind)):
            problem = f"model '{config.name}' has no {kind}; give at least one"
            report.add(kind, "E152", f"{problem} with name, data_type and dims")
    return findings + report.findings
