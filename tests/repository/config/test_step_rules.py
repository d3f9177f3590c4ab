"""Parameters of the built-in steps: each mistake is a finding with its place."""

from pathlib import Path

import pytest

from repository.config.positions import Positions
from repository.config.read import parse
from repository.config.step_parameters import STEP_PARAMETERS, StepParameter, read_settings
from repository.config.validate import validate

WHERE = Path("m/config.pbtxt")


def findings(text: str) -> list[str]:
    config = parse(text, WHERE)
    return [
        f"{one.line}:{one.column} {one.code} {one.message}"
        for one in validate(config, Positions(WHERE, text))
    ]


def config(backend: str, key: str, value: str) -> str:
    return (
        f'backend: "{backend}"\nparameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'
    )


@pytest.mark.parametrize(
    ("backend", "key", "value", "message"),
    [
        (
            "image",
            "siz",
            "224",
            "parameter siz is not one of the backend 'image'; did you mean size?",
        ),
        (
            "image",
            "resize",
            "letter_box",
            "parameter resize is 'letter_box'; it must be crop, stretch, letterbox; did you mean "
            "letterbox?",
        ),
        ("image", "size", "0", "parameter size is '0'; it must be 224, or width x height such as "),
        ("image", "std", "0", "parameter std is '0'; it must be one number or three, above 0"),
        ("image", "scale", "1/0", "parameter scale is '1/0'; it must be a number or a fraction"),
        ("image", "top_k", "3", "parameter top_k is not one of the backend 'image'; its keys are"),
        ("classify", "top_k", "-1", "parameter top_k is '-1'; it must be 1 to 100000"),
        ("classify", "threshold", "nan", "parameter threshold is 'nan'; it must be a number"),
        ("detect", "iou_threshold", "2", "parameter iou_threshold is '2'; it must be 0 to 1"),
        ("text", "truncation", "yes", "parameter truncation is 'yes'; it must be true or false"),
    ],
)
def test_a_parameter_that_cannot_be_followed_is_a_finding_at_its_place(
    backend: str, key: str, value: str, message: str
) -> None:
    (found,) = [one for one in findings(config(backend, key, value)) if "E161" in one]
    assert found.startswith("2:")
    assert message in found


@pytest.mark.parametrize("key", ["rollout", "execute_timeout_secs"])
def test_keys_that_all_models_have_are_left_to_others(key: str) -> None:
    assert not [one for one in findings(config("image", key, "1")) if "E161" in one]


@pytest.mark.parametrize("row", STEP_PARAMETERS, ids=lambda row: f"{row.backend} {row.key}")
def test_every_default_may_be_written(row: StepParameter) -> None:
    if row.default:
        assert read_settings(row.backend, {row.key: row.default}) == read_settings(row.backend, {})


def test_fractions_and_sizes_are_read() -> None:
    found = read_settings("image", {"scale": "1/255", "size": "640x480", "mean": "1,2,3"})
    assert (found["scale"], found["size"]) == (1 / 255, (640, 480))
    assert found["mean"] == (1, 2, 3)
