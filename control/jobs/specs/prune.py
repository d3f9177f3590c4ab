"""Prunings: weights or channels removed, and the rest trained again."""

from control.jobs.specs.source import JobSource


class PruneSpec(JobSource, frozen=True, kw_only=True, tag_field="type", tag="prune"):
    """Remove weights or channels from the version, and train what is left."""
