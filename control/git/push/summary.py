"""What the pusher reads of a commit that passes: its models, versions and sizes. Pure."""

from collections.abc import Iterator

from control.git.push.examine import Examination
from control.git.push.inspect import ModelInspection


def summary(examined: Examination) -> Iterator[str]:
    """Lines, one per model that was looked at or goes."""
    for name, one in sorted(examined.inspected.items()):
        yield f"{name}: {_versions(one)}; checks passed"
    for name in examined.removed:
        yield f"{name}: removed, and unloaded once this is accepted"
    if examined.unchanged and not examined.inspected:
        yield f"{models_text(len(examined.unchanged))}, none of them changed"
    if not (examined.inspected or examined.unchanged or examined.removed):
        yield (
            "no model in this commit: put them below models/NAME/, each with a config.pbtxt and a "
            "folder per version"
        )


def models_text(count: int) -> str:
    return f"{count} model{'s' if count > 1 else ''}"


def _versions(one: ModelInspection) -> str:
    if not one.versions:
        return "no version"
    numbers = ", ".join(
        f"{number} ({one.backends[number]}, {_size(sealed.size_bytes)})"
        for number, sealed in sorted(one.versions.items())
    )
    return f"version{'s' if len(one.versions) > 1 else ''} {numbers}"


def _size(size_bytes: int) -> str:
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.1f} {unit}"
    return f"{size_bytes} bytes"
