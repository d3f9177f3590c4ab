"""What config.pbtxt may say of a language model, and how it is refused otherwise."""

from pathlib import Path

import pytest

from backends.errors import LoadFailed
from backends.llm.settings import ServeSettings, read_settings
from repository.config.parameter_table import PARAMETERS
from repository.model import ModelConfig, ModelVersion


def version(**parameters: str) -> ModelVersion:
    config = ModelConfig(name="story")
    for name, value in parameters.items():
        config.parameters[name.replace("__", ".")].string_value = value
    return ModelVersion("story", 3, Path("story"), Path("story/3"), config, "")


def test_nothing_said_is_the_defaults_and_rollouts_are_others_business() -> None:
    assert read_settings(version(rollout="progressive", rollout__steps="5")) == ServeSettings()


def test_what_every_backend_may_be_told_is_not_refused() -> None:
    told = {row.key: "true" for row in PARAMETERS if not row.backends and "*" not in row.key}
    assert "load_on_demand" in told
    assert read_settings(version(**told)) == ServeSettings()


def test_what_is_said_is_read() -> None:
    settings = read_settings(
        version(precision="int4", context="2048", memory_budget="1.5GiB", pooling="mean")
    )
    assert (settings.precision, settings.context) == ("int4", 2048)
    assert (settings.memory_budget, settings.pooling) == (3 << 29, "mean")


@pytest.mark.parametrize(("text", "bytes"), [("123456", 123456), ("2MB", 2 << 20), ("4 k", 4096)])
def test_a_budget_may_have_a_unit(text: str, bytes: int) -> None:
    assert read_settings(version(memory_budget=text)).memory_budget == bytes


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("precision", "int3", "parameter precision is 'int3'; it must be one of float32"),
        ("cache_type", "fp8", "it must be one of auto, int8"),
        ("context", "0", "parameter context is '0'; it must be a whole number from 1"),
        ("context", "many", "it must be a whole number"),
        ("threads", "-1", "it must be a whole number from 1 to 1024"),
        ("max_running", "٣", "it must be a whole number"),
        ("memory_budget", "lots", "it must be a number of bytes such as 800MiB"),
        ("memory_budget", "0", "it must be a number of bytes"),
        ("max_runing", "3", "there is no parameter 'max_runing'; a language model takes"),
    ],
)
def test_anything_else_is_refused_by_name(name: str, value: str, complaint: str) -> None:
    with pytest.raises(LoadFailed) as refused:
        read_settings(version(**{name: value}))
    assert str(refused.value).startswith("model 'story' version 3: ")
    assert complaint in str(refused.value)


def test_more_running_than_a_step_has_tokens_is_refused() -> None:
    with pytest.raises(LoadFailed, match="every running sequence needs one token"):
        read_settings(version(max_running="64", step_tokens="32"))
