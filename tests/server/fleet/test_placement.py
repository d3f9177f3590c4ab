"""Where instances go, on machines of every kind."""

from pathlib import Path

import pytest
from google.protobuf import text_format

from backends.errors import LoadFailed
from backends.registry import RUNTIMES
from backends.seam import Device
from repository.model import ModelConfig
from server.fleet.placement import (
    Placement,
    describe,
    difference,
    may_use_gpu,
    place,
    resolve,
    visible_gpus,
)


def placed(
    backend: str, groups: str = "", cores: int = 4, gpus: tuple[int, ...] = ()
) -> list[tuple[str, int, int, int]]:
    """(kind, index, threads, instances) of each placement."""
    resolved = resolved_of(backend, groups, cores, gpus)
    return [
        (device.kind, device.index, device.threads, len(names))
        for device, names in place(resolved, cores)
    ]


def resolved_of(
    backend: str, groups: str = "", cores: int = 4, gpus: tuple[int, ...] = ()
) -> ModelConfig:
    config = text_format.Parse(f'name: "m" backend: "{backend}" {groups}', ModelConfig())
    return resolve(config, RUNTIMES[backend], cores, gpus)


def test_unset_gives_a_per_core_runtime_one_thread_on_every_core() -> None:
    assert placed("onnxruntime") == [("cpu", 0, 1, 4)]


def test_unset_gives_other_runtimes_one_instance_with_every_core() -> None:
    assert placed("pytorch") == [("cpu", 0, 4, 1)]


def test_a_count_shares_the_cores_between_the_instances() -> None:
    assert placed("onnxruntime", "instance_group { count: 2 }") == [("cpu", 0, 2, 2)]
    assert placed("pytorch", "instance_group { count: 8 }") == [("cpu", 0, 1, 8)]
    two = "instance_group { count: 1 kind: KIND_CPU } instance_group { count: 3 kind: KIND_CPU }"
    assert placed("onnxruntime", two) == [("cpu", 0, 1, 1), ("cpu", 0, 1, 3)]


def test_unset_goes_to_every_gpu_where_the_runtime_can_use_one() -> None:
    assert placed("onnxruntime", gpus=(0, 1)) == [("cuda", 0, 1, 1), ("cuda", 1, 1, 1)]
    assert placed("identity", gpus=(0, 1)) == [("cpu", 0, 1, 4)]


@pytest.mark.parametrize(
    ("backend", "groups", "gpus", "may"),
    [
        ("pytorch", "", (0,), True),
        ("pytorch", "", (), False),
        ("pytorch", "instance_group { kind: KIND_CPU }", (0,), False),
        ("llm", "instance_group { kind: KIND_GPU }", (0,), True),
        ("llm", "", (0,), False),
        ("python", "instance_group { kind: KIND_CPU }", (0,), True),
        ("python", "", (), False),
    ],
)
def test_processes_may_use_a_gpu_where_their_instances_or_their_code_can(
    backend: str, groups: str, gpus: tuple[int, ...], may: bool
) -> None:
    assert may_use_gpu(resolved_of(backend, groups, gpus=gpus), gpus) is may


def test_a_gpu_group_goes_to_the_gpus_it_names_or_to_all() -> None:
    named = "instance_group { kind: KIND_GPU count: 2 gpus: 1 }"
    assert placed("onnxruntime", named, gpus=(0, 1)) == [("cuda", 1, 1, 2)]
    assert placed("onnxruntime", "instance_group { kind: KIND_GPU }", gpus=(0, 1)) == [
        ("cuda", 0, 1, 1),
        ("cuda", 1, 1, 1),
    ]


def test_a_language_model_goes_to_a_gpu_only_when_it_asks_for_one() -> None:
    assert placed("llm", gpus=(0, 1)) == [("cpu", 0, 4, 1)]
    assert placed("llm", "instance_group { count: 2 }", gpus=(0, 1)) == [("cpu", 0, 2, 2)]
    asks = "instance_group { kind: KIND_GPU gpus: 1 }"
    assert placed("llm", asks, gpus=(0, 1)) == [("cuda", 1, 1, 1)]


def test_cpu_and_model_kinds_stay_on_the_cpu() -> None:
    for kind in ("KIND_CPU", "KIND_MODEL"):
        group = f"instance_group {{ kind: {kind} count: 1 }}"
        assert placed("onnxruntime", group, gpus=(0,)) == [("cpu", 0, 4, 1)]


def test_a_gpu_that_is_not_there_is_refused_with_what_is() -> None:
    with pytest.raises(LoadFailed, match=r"KIND_GPU, but this machine has no NVIDIA GPU"):
        placed("onnxruntime", "instance_group { kind: KIND_GPU }")
    with pytest.raises(LoadFailed, match=r"asks for gpus \[3\], this machine has \[0\]"):
        placed("onnxruntime", "instance_group { gpus: 3 }", gpus=(0,))


def test_gpus_are_counted_as_cuda_shows_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert visible_gpus(tmp_path) == (0, 1)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert visible_gpus(tmp_path) == (0,)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert visible_gpus(tmp_path) == ()


def test_instances_are_described_for_people() -> None:
    one, wide, gpu = Device("cpu", 0, 1), Device("cpu", 0, 4), Device("cuda", 1, 1)
    assert describe([one, one, wide, gpu]) == "2 × cpu, 1 × cpu (4 threads), 1 × cuda:1"


def test_groups_are_filled_in_as_triton_does() -> None:
    def shown(groups: str, gpus: tuple[int, ...] = (), backend: str = "onnxruntime") -> list[str]:
        found = resolved_of(backend, groups, 4, gpus).instance_group
        return [
            f"{one.name} {one.Kind.Name(one.kind)} {one.count} {list(one.gpus)}" for one in found
        ]

    assert shown("") == ["m KIND_CPU 4 []"]
    assert shown("", (0, 1)) == ["m KIND_GPU 1 [0, 1]"]
    assert shown("", (0, 1), "python") == ["m KIND_CPU 1 []"]
    two = 'instance_group { name: "mine" kind: KIND_MODEL } instance_group { count: 2 }'
    assert shown(two) == ["mine KIND_MODEL 1 []", "m_1 KIND_CPU 2 []"]
    assert shown(two, (0, 1)) == ["mine KIND_MODEL 1 []", "m_1 KIND_GPU 2 [0, 1]"]
    passive = "instance_group { passive: true kind: KIND_GPU gpus: 7 }"
    assert shown(passive) == ["m_0 KIND_GPU 1 [7]", "m KIND_CPU 4 []"]


def test_instances_are_named_after_their_group_and_no_name_is_given_twice() -> None:
    def names(groups: str, gpus: tuple[int, ...] = ()) -> list[str]:
        placements = place(resolved_of("onnxruntime", groups, 2, gpus), 2)
        return [name for placement in placements for name in placement.names]

    assert names("") == ["m_0", "m_1"]
    two = "instance_group { count: 2 kind: KIND_CPU } instance_group { count: 1 kind: KIND_CPU }"
    assert names(two) == ["m_0_0", "m_0_1", "m_1_0"]
    assert names("instance_group { count: 2 }", (0, 1)) == ["m_0_0", "m_0_1", "m_0_2", "m_0_3"]
    assert names(2 * 'instance_group { name: "a" kind: KIND_CPU }') == ["a_0", "a_1"]


NARROW, WIDE = Device("cpu", 0, 1), Device("cpu", 0, 2)


def test_a_resize_keeps_what_fits_and_adds_what_is_missing() -> None:
    def resized(
        device: Device, wanted: str, present: str, ready: list[bool] | None = None
    ) -> tuple[list[int], list[Placement]]:
        placement = Placement(device, tuple(wanted.split()))
        names = present.split()
        return difference([placement], [NARROW] * len(names), names, ready or [])

    assert resized(NARROW, "a b c", "a b") == ([0, 1], [Placement(NARROW, ("c",))])
    assert resized(NARROW, "a", "a b") == ([0], [])
    assert resized(NARROW, "a", "a b", [False, True]) == ([1], [])
    assert resized(WIDE, "a b", "a") == ([0], [Placement(WIDE, ("b",))])
    assert resized(NARROW, "a b c", "b") == ([0], [Placement(NARROW, ("a", "c"))])
    assert resized(NARROW, "g_0 g_1", "m_0") == ([0], [Placement(NARROW, ("g_0",))])


def test_a_resize_gives_no_name_twice_when_an_instance_passes_to_another_group() -> None:
    wanted = [Placement(NARROW, ("a_0", "a_1")), Placement(NARROW, ("b_0", "b_1"))]
    keep, missing = difference(wanted, [NARROW, NARROW], ["b_0", "b_1"])
    assert (keep, missing) == ([0, 1], [Placement(NARROW, ("a_0", "a_1"))])
