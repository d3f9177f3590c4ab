"""Programs of torch.export (model.pt2) among a job's files: torch runs code that one brings."""

from pathlib import Path

from backends.pytorch.archive import brings_code
from control.jobs.spec import JobSpec
from control.jobs.specs.convert import ConvertSpec
from control.jobs.specs.profile import ProfileSpec
from jobs.worker.folders import CannotRead

SUFFIX = ".pt2"
_ADVICE = {
    True: "export it again, or an administrator who trusts its publisher can start this job with "
    "`trusted: true`",
    False: "export it again, or convert it and profile the result",
}
"""By whether a conversion was asked for."""


def check_programs(spec: JobSpec, source: Path) -> None:
    """Conversions and profiles load programs, so each must be as torch.export itself writes it
    unless the spec says `trusted`, as one of a conversion may. Loads none of them.

    Raises CannotRead naming the file, OSError.
    """
    if not isinstance(spec, ConvertSpec | ProfileSpec) or getattr(spec, "trusted", False):
        return
    for path in sorted(source.rglob(f"*{SUFFIX}")):
        if path.is_file() and brings_code(path):
            raise CannotRead(
                f"model '{spec.model}' version {spec.version}: {path.relative_to(source)} is no "
                "program as torch.export.save writes it, and loading another one may run code in "
                f"it; {_ADVICE[isinstance(spec, ConvertSpec)]}"
            )
