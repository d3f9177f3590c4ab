"""Optimisations: the same function by a simpler graph."""

from control.jobs.specs.source import JobSource


class OptimiseSpec(JobSource, frozen=True, kw_only=True, tag_field="type", tag="optimise"):
    """Simplify the version's graph, and store its weights in another precision if asked."""
