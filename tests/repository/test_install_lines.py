"""How to install what an extra has: the lines are those of pyproject.toml, and name no index name
of ours."""

import tomllib
from importlib import metadata

import pytest

from repository.install_lines import install_line, line_for_module, name_of, requirements_of
from support.server import ROOT

EXTRAS: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
    "optional-dependencies"
]


@pytest.mark.parametrize("extra", ["cpu", "torch", "llm", "postgres", "otel", "signing", "sources"])
def test_the_line_of_an_extra_has_its_requirements(extra: str) -> None:
    assert set(requirements_of(extra)) == set(EXTRAS[extra])
    line = install_line(extra)
    assert line.startswith("pip install ")
    assert all(name_of(one) in line for one in EXTRAS[extra])
    assert "modelyard" not in line


def test_extras_of_ours_within_an_extra_are_written_out() -> None:
    whole = requirements_of("all")
    assert set(whole) >= {*EXTRAS["cpu"], *EXTRAS["llm"], *EXTRAS["postgres"], *EXTRAS["sources"]}
    assert not [one for one in whole if name_of(one) == "modelyard"]


def test_cpu_has_no_torch() -> None:
    assert not [one for one in requirements_of("cpu") if name_of(one) == "torch"]


def test_a_missing_module_is_found_in_the_extra_that_brings_it() -> None:
    assert "torch==" in line_for_module("torch.nn")
    assert "tokenizers" in line_for_module("tokenizers")
    assert line_for_module("nobody_has_this") == ""


def test_an_extra_nobody_knows_is_named() -> None:
    assert metadata.version("modelyard")
    assert install_line("none") == "the extra 'none' of modelyard"


@pytest.mark.parametrize("text", ["psycopg[binary]>=3", "psycopg >=3", "psycopg", "psycopg==3"])
def test_the_name_of_a_requirement(text: str) -> None:
    assert name_of(text) == "psycopg"
