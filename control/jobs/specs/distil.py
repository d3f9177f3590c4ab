"""Distillations: a smaller network that learns the answers of a larger one."""

from control.jobs.specs.source import JobSource


class DistilSpec(JobSource, frozen=True, kw_only=True, tag_field="type", tag="distil"):
    """Train a smaller network to answer as the version does."""
