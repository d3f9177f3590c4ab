"""Conversions: the same network in another format."""

from control.jobs.specs.source import JobSource


class ConvertSpec(JobSource, frozen=True, kw_only=True, tag_field="type", tag="convert"):
    """Write the version in another format."""
