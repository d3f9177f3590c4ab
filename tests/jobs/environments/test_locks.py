"""Locks of tool environments: whole, of the tree's versions, and compared rightly."""

import re
from importlib import metadata
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from packaging.requirements import Requirement

from control.jobs.spec import JobSpec
from jobs.environments.choose import environment_of
from jobs.environments.locks import LockedPackage, canonical, missing, names, pins

ROOT = Path(__file__).resolve().parents[3]
LOCK = (LockedPackage("onnxruntime", "1.31.1"), LockedPackage("torch", "2.13.0+cpu"))


@pytest.mark.parametrize("name", names())
def test_lock_has_the_versions_of_the_tree(name: str) -> None:
    found = re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", (ROOT / "constraints.txt").read_text(), re.M)
    known = {canonical(one): version for one, version in found}
    other = [str(pin) for pin in pins(name) if known.get(pin.name) != pin.version.split("+")[0]]
    assert not other


@pytest.mark.parametrize("name", names())
def test_lock_names_all_that_its_packages_need(name: str) -> None:
    locked = {pin.name for pin in pins(name)}
    needed = {
        canonical(need.name)
        for pin in pins(name)
        for need in map(Requirement, metadata.requires(pin.name) or ())
        if need.marker is None or need.marker.evaluate({"extra": ""})
    }
    assert needed <= locked


def test_every_type_of_job_has_an_environment_with_a_lock() -> None:
    for kind in get_args(JobSpec):
        given = {"type": kind.__struct_config__.tag, "model": "m"}
        needed = {"recipe": "r", "data": "d"}
        fields = {one.encode_name for one in msgspec.structs.fields(kind) if one.required}
        given |= {name: needed[name] for name in fields - given.keys()}
        assert environment_of(msgspec.convert(given, JobSpec)) in names()


def test_package_of_the_same_version_is_as_good_in_another_build() -> None:
    installed = {"onnxruntime-gpu": "1.31.1", "torch": "2.13.0"}
    assert missing(LOCK, lambda name: installed.get(name, "")) == []


def test_package_that_is_absent_or_of_another_version_is_missing() -> None:
    installed = {"torch": "2.12.0"}
    assert missing(LOCK, lambda name: installed.get(name, "")) == list(LOCK)
