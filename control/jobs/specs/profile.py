"""Profiles: a search for the settings under which a version is served best."""

from control.jobs.specs.source import JobSource


class ProfileSpec(JobSource, frozen=True, kw_only=True, tag_field="type", tag="profile"):
    """Search the settings that serve the version best under a latency or throughput goal."""
