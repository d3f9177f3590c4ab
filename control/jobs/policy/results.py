"""Which model gets the result of a job. Pure."""

from enum import StrEnum

from control.jobs.spec import JobSpec
from control.jobs.specs.convert import ConvertSpec
from control.jobs.specs.distil import DistilSpec
from control.jobs.specs.optimise import OptimiseSpec
from control.jobs.specs.profile import ProfileSpec
from control.jobs.specs.prune import PruneSpec
from control.jobs.specs.quantise import QuantiseSpec
from control.jobs.specs.quantise_llm import QuantiseLlmSpec


class SourceHome(StrEnum):
    """Where the versions of a model come from."""

    STORE = "store"  # imports and jobs
    GIT = "git"  # a repository that people push to
    FOLDER = "folder"  # a model repository that the server only reads


def makes_version(spec: JobSpec) -> bool:
    """A profile gives advice alone."""
    return not isinstance(spec, ProfileSpec)


def default_result(spec: JobSpec, home: SourceHome) -> str:
    """The name of the model that gets the result where nobody names one; "" for a job without.

    The source itself, as its next version, where the server may write to it and the same backend
    serves both; else a model of the store that is named after the source and the job.
    """
    if not makes_version(spec):
        return ""
    if home is SourceHome.STORE and not isinstance(spec, ConvertSpec):
        return spec.model
    return f"{spec.model}-{suffix(spec)}"


def suffix(spec: JobSpec) -> str:
    """What a job makes of a model, in a word: "int8", "pruned"."""
    match spec:
        case QuantiseSpec():
            return "int8"
        case QuantiseLlmSpec():
            return f"int{spec.bits}"
        case PruneSpec():
            return "pruned"
        case DistilSpec():
            return "student"
        case OptimiseSpec():
            return "optimised"
        case ConvertSpec():
            return spec.target
        case ProfileSpec():
            return "profile"
