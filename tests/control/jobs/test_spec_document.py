"""What is asked of a job is checked, and what is wrong with it said by field."""

from typing import Any

import pytest

from control.errors import Invalid
from control.jobs.policy.limits import JobLimits
from control.jobs.spec_document import read_limits, read_spec
from control.jobs.specs.prune import PruneSpec

PRUNE = {"type": "prune", "model": "digits"}


def test_a_document_becomes_the_spec_of_its_type() -> None:
    found = read_spec({**PRUNE, "amount": 0.25, "keep": ["fc"]})
    assert found == PruneSpec(model="digits", amount=0.25, keep=("fc",))


@pytest.mark.parametrize(
    ("document", "field", "words"),
    [
        ({"model": "digits"}, "type", "type is 'missing'; give convert, optimise, quantise"),
        ({"type": "shrink", "model": "digits"}, "type", "type is 'shrink'; give convert"),
        ({"type": "prune"}, "model", "model is missing"),
        ({**PRUNE, "ratio": 1}, "ratio", "type prune have no field 'ratio'; there are model"),
        ({**PRUNE, "amount": 2}, "amount", "amount is 2; it must be a number above 0"),
        ({**PRUNE, "amount": "half"}, "amount", "amount is 'half'; it must be a number"),
        ({**PRUNE, "method": "x"}, "method", "method is 'x'; it must be one of "),
        ({**PRUNE, "stages": 99}, "stages", "a whole number of at least 1 and of at most 20"),
        ({**PRUNE, "keep": ["a", 5]}, "keep", "keep.1 is 5; it must be a list, each a text"),
        ({**PRUNE, "model": None}, "model", "model is None; it must be a text"),
        ({**PRUNE, "recipe": "../../x.py"}, "recipe", "without '..'"),
        ({**PRUNE, "recipe": "/etc/passwd"}, "recipe", "a path below the model's folder"),
        ({**PRUNE, "data": "/data/../etc"}, "data", "without '..'"),
        ({**PRUNE, "data": "a\nb"}, "data", "a path below the model's folder"),
        ({**PRUNE, "data": "a" * 300}, "data", "each name of at most 255 bytes"),
        ({**PRUNE, "data": "ä" * 200}, "data", "each name of at most 255 bytes"),
        ({**PRUNE, "data": "a/" * 40}, "data", "at most 1024 characters and 32 folders"),
        ({**PRUNE, "data": "/" * 2000}, "data", "at most 1024 characters and 32 folders"),
    ],
)
def test_what_is_wrong_is_said_by_field_with_what_would_work(
    document: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(Invalid) as refused:
        read_spec(document)
    assert words in str(refused.value)
    assert refused.value.field == field


def test_limits_change_what_is_usual_within_bounds() -> None:
    assert read_limits({"threads": 2}, JobLimits(wall_s=5)) == JobLimits(wall_s=5, threads=2)
    with pytest.raises(Invalid, match="threads is 0; it must be a whole number of at least 1"):
        read_limits({"threads": 0}, JobLimits())
    with pytest.raises(Invalid, match="the limits of a job have no field 'gpu'"):
        read_limits({"gpu": 1}, JobLimits())


def test_a_limit_without_a_name_is_refused() -> None:
    with pytest.raises(Invalid, match="the limits of a job have no field ''"):
        read_limits({"": None}, JobLimits())
