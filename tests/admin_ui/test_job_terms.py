"""The form of a job's spec: every type has one, and what is typed in it is a spec."""

import msgspec
import pytest

from admin_ui.pages.job_terms import read_spec, spec_forms
from admin_ui.services import ControlApiError
from control.jobs.spec import JOB_TYPES, JobSpec


def test_every_job_type_has_a_form_that_says_what_each_field_means() -> None:
    forms = spec_forms()
    assert sorted(forms) == sorted(JOB_TYPES)
    for form in forms.values():
        assert form.about
        assert [one.name for one in form.fields if not one.hint] == []


@pytest.mark.parametrize("kind", JOB_TYPES)
def test_a_form_left_as_it_is_asks_for_the_defaults(kind: str) -> None:
    form = spec_forms()[kind]
    typed = {one.name: one.usual for one in form.fields}
    spec = read_spec(kind, typed)
    assert spec == {"type": kind}
    if not any(one.required for one in form.fields):
        assert msgspec.convert({"model": "m", **spec}, JobSpec)


def test_what_is_typed_becomes_numbers_lists_and_truths() -> None:
    typed = {
        "method": "static",
        "batch_sizes": "1, 4",
        "per_channel": "false",
        "floor": "0.9",
        "exclude": "conv1, conv2",
    }
    spec = read_spec("quantise", typed)
    assert spec == {
        "type": "quantise",
        "method": "static",
        "batch_sizes": [1, 4],
        "per_channel": False,
        "floor": 0.9,
        "exclude": ["conv1", "conv2"],
    }
    assert msgspec.convert({"model": "m", **spec}, JobSpec)


def test_a_type_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(ControlApiError, match="there is no job type 'melt'; there are convert"):
        read_spec("melt", {})
