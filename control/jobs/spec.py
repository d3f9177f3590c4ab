"""The union of all job types, tagged by the field `type`."""

from typing import get_args

from control.jobs.specs.convert import ConvertSpec
from control.jobs.specs.distil import DistilSpec
from control.jobs.specs.optimise import OptimiseSpec
from control.jobs.specs.profile import ProfileSpec
from control.jobs.specs.prune import PruneSpec
from control.jobs.specs.quantise import QuantiseSpec
from control.jobs.specs.quantise_llm import QuantiseLlmSpec

JobSpec = (
    ConvertSpec
    | OptimiseSpec
    | QuantiseSpec
    | QuantiseLlmSpec
    | PruneSpec
    | DistilSpec
    | ProfileSpec
)
"""A job's type and what it is asked; the fields of a type belong to its tool in `jobs/tools`."""

JOB_TYPES: tuple[str, ...] = tuple(str(kind.__struct_config__.tag) for kind in get_args(JobSpec))
"""The tags."""
