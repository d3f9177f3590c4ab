"""Quantisations: weights, and activations, in fewer bits."""

from control.jobs.specs.source import JobSource


class QuantiseSpec(JobSource, frozen=True, kw_only=True, tag_field="type", tag="quantise"):
    """Store and compute the version in fewer bits."""
