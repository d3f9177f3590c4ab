"""`--memory-budget`: sizes and devices that are understood, and what holds by default."""

from pathlib import Path

import pytest

from server.process.machine import usable_memory
from server.settings.memory import budgets, read_size
from server.settings.sources import read_settings
from server.settings.table import Settings, SettingsError


@pytest.mark.parametrize(
    ("text", "bytes"),
    [("1000000", 10**6), ("16GiB", 16 << 30), ("1.5 GB", 1_500_000_000), ("70gib", 70 << 30)],
)
def test_a_size_is_read_with_its_unit(text: str, bytes: int) -> None:
    assert read_size(text) == bytes


@pytest.mark.parametrize("text", ["", "-1", "0", "GiB", "1 GiB more", "2PiB", "9" * 40])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        read_size(text)


@pytest.mark.parametrize("text", ["16GiB", "gpu=1GiB", "cpu:0=1GiB", "cuda=1GiB", "cpu="])
def test_what_names_no_device_and_size_is_refused_with_what_would_do(text: str) -> None:
    with pytest.raises(SettingsError, match=r"--memory-budget: .* as in cpu=16GiB"):
        read_settings({"memory_budget": [text]}, {}, Path("/nowhere"))


def test_several_devices_may_be_given_in_one_value_or_in_several() -> None:
    wanted = {"cpu": 16 << 30, "cuda:0": 70 << 30}
    flags = {"memory_budget": ["cpu=16GiB", "cuda:0=70GiB"]}
    assert read_settings(flags, {}, Path("/nowhere")).memory_budgets == wanted
    variables = {"MODELYARD_MEMORY_BUDGET": "cpu=16GiB,cuda:0=70GiB"}
    assert read_settings({}, variables, Path("/nowhere")).memory_budgets == wanted
    assert Settings(memory_budget=("cpu=16GiB,cuda:0=70GiB",)).memory_budgets == wanted


def test_a_device_given_twice_is_refused() -> None:
    with pytest.raises(SettingsError, match="'cpu' is given twice"):
        Settings(memory_budget=("cpu=1GiB", "cpu=2GiB"))


def test_the_cpu_has_most_of_the_memory_unless_told_otherwise() -> None:
    assert budgets((), 1000) == {"cpu": 800}
    assert budgets(("cuda:0=1MiB",), 1000) == {"cpu": 800, "cuda:0": 1 << 20}
    assert budgets((), 0) == {}


def test_memory_is_the_machines_cut_to_every_limit_above(tmp_path: Path) -> None:
    meminfo, membership = tmp_path / "meminfo", tmp_path / "cgroup"
    meminfo.write_text("MemTotal:       1000 kB\nMemFree: 1 kB\n")
    membership.write_text("0::/a/b\n")
    cgroups = tmp_path / "cgroups"
    (cgroups / "a" / "b").mkdir(parents=True)
    assert usable_memory(cgroups, membership, meminfo) == 1000 * 1024
    (cgroups / "a" / "memory.max").write_text("5000\n")
    (cgroups / "a" / "b" / "memory.max").write_text("max\n")
    assert usable_memory(cgroups, membership, meminfo) == 5000
    assert usable_memory(cgroups, membership, tmp_path / "nothing") == 5000


def test_version_one_cgroups_count_too(tmp_path: Path) -> None:
    membership = tmp_path / "cgroup"
    membership.write_text("4:cpu,cpuacct:/x\n7:memory:/x\n")
    (tmp_path / "memory" / "x").mkdir(parents=True)
    (tmp_path / "memory" / "x" / "memory.limit_in_bytes").write_text("7000\n")
    assert usable_memory(tmp_path, membership, tmp_path / "nothing") == 7000
