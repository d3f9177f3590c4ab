"""Where instances go, on machines of every kind."""

from pathlib import Path

import pytest
from google.protobuf import text_format

from backends.errors import LoadFailed
from backends.registry import RUNTIMES
from backends.seam import Device
from repository.model import ModelConfig
from server.fleet.loading import difference
from server.fleet.placement import Placement, describe, place, visible_gpus


def placed(
    backend: str, groups: str = "", cores: int = 4, gpus: tuple[int, ...] = ()
) -> list[tuple[str, int, int, int]]:
    """(kind, index, threads, instances) of each placement."""
    config = text_format.Parse(f'name: "m" backend: "{backend}" {groups}', ModelConfig())
    return [
        (device.kind, device.index, device.threads, instances)
        for device, instances in place(config, RUNTIMES[backend], cores, gpus)
    ]


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


def test_a_resize_keeps_what_fits_and_adds_what_is_missing() -> None:
    narrow, wide = Device("cpu", 0, 1), Device("cpu", 0, 2)
    assert difference([Placement(narrow, 3)], [narrow, narrow]) == ([0, 1], [Placement(narrow, 1)])
    assert difference([Placement(narrow, 1)], [narrow, narrow]) == ([0], [])
    assert difference([Placement(wide, 1)], [narrow]) == ([], [Placement(wide, 1)])
