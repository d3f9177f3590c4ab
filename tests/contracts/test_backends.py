"""Promises of `backends.seam` that every backend and every kind of instance keeps."""

import re
import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from backends.errors import ExecutionFailed, LoadFailed
from backends.loading import load
from backends.registry import backend_of
from backends.seam import Instance, LoadedInstances, Result, Tensors
from repository.config.tensors import Array
from repository.model import ModelVersion
from support.backend_cases import (
    CASES,
    DEFAULT_MAX_BATCH,
    IN_THIS_PROCESS,
    KNOWING,
    PAIRS,
    REFUSING,
    ROWS,
    WITH_A_FILE,
    Case,
    of,
    parameters,
)
from support.runtime import (
    CPU,
    batch_of,
    make_version,
    member,
    with_config,
)

pytestmark = [
    pytest.mark.filterwarnings(r"ignore:`torch\.jit\.\w+` is deprecated"),
    pytest.mark.filterwarnings("ignore:The given NumPy array is not writable"),
]


@pytest.fixture(scope="module")
def artefacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the file of every backend's model of PAIRS."""
    folder = tmp_path_factory.mktemp("artefacts")
    for case in WITH_A_FILE:
        case.write(folder / case.file)
    return folder


def version_of(case: Case, root: Path, artefacts: Path, config: str = PAIRS) -> ModelVersion:
    version = make_version(root, config)
    version.config.backend = case.backend
    if case.isolated:
        version.config.parameters["isolation"].string_value = "process"
    if case.file:
        for name in (case.file, *case.beside):
            shutil.copy(artefacts / name, version.path)
    return version


def completed(version: ModelVersion) -> ModelVersion:
    backend = backend_of(version.config.backend)
    return with_config(version, backend.complete(version, DEFAULT_MAX_BATCH))


def load_version(case: Case, version: ModelVersion, count: int = 1) -> LoadedInstances:
    """Completed and loaded, as the server does it; a hosted instance has a worker of its own."""
    version = completed(version)
    if not case.hosted:
        return backend_of(case.backend).load(version, CPU, count)
    return load(version, CPU, [f"m_{number}" for number in range(count)])


@contextmanager
def running(case: Case, version: ModelVersion, count: int = 1) -> Iterator[LoadedInstances]:
    loaded = load_version(case, version, count)
    try:
        yield loaded
    finally:
        for instance in loaded.instances:
            instance.close()


@pytest.fixture(scope="module", params=parameters(CASES))
def instance(
    request: pytest.FixtureRequest, artefacts: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Instance]:
    version = version_of(request.param, tmp_path_factory.mktemp("repository"), artefacts)
    with running(request.param, version) as loaded:
        yield loaded.instances[0]


def rows(*values: float) -> Array:
    return np.array([[value, value + 0.5] for value in values], np.float32)


def tensors(result: Result) -> Tensors:
    assert isinstance(result, Mapping), result
    return result


def lists(result: Result) -> dict[str, list[object]]:
    return {name: array.tolist() for name, array in tensors(result).items()}


# Instance


def test_every_member_gets_its_own_rows_in_order(instance: Instance) -> None:
    sent = [rows(1, 2), rows(3), rows(4, 5, 6)]

    results = instance.execute(batch_of(*[member(a=a, b=-a) for a in sent])).results

    assert [lists(result) for result in results] == [
        {"X": a.tolist(), "Y": (-a).tolist()} for a in sent
    ]


def test_a_request_is_answered_alone_as_in_a_batch(instance: Instance) -> None:
    asked = [member(a=rows(value), b=rows(-value)) for value in (1, 2, 3)]

    together = instance.execute(batch_of(*asked)).results
    alone = [instance.execute(batch_of(one)).results[0] for one in asked]

    assert [lists(result) for result in together] == [lists(result) for result in alone]


def test_a_member_gets_the_outputs_it_wants_and_all_when_it_names_none(instance: Instance) -> None:
    a, b = rows(1), rows(2)

    results = instance.execute(
        batch_of(member(("Y",), a=a, b=b), member(a=a, b=b), member(("X",), a=a, b=b))
    ).results

    assert [sorted(tensors(result)) for result in results] == [["Y"], ["X", "Y"], ["X"]]


def test_a_batch_of_one_gets_only_what_it_wants(instance: Instance) -> None:
    (result,) = instance.execute(batch_of(member(("Y",), a=rows(1), b=rows(2)))).results

    assert lists(result) == {"Y": rows(2).tolist()}


def test_inputs_stay_as_they_were_sent(instance: Instance) -> None:
    a, b = rows(1, 2), rows(3, 4)

    instance.execute(batch_of(member(a=a, b=b), member(a=b, b=a)))

    assert (a.tolist(), b.tolist()) == (rows(1, 2).tolist(), rows(3, 4).tolist())


def test_inputs_may_be_read_only_views_at_any_address(instance: Instance) -> None:
    a, b = rows(1, 2), rows(3, 4)
    received = b"head" + a.tobytes() + b"|" + b.tobytes()
    views = [
        np.frombuffer(received, np.uint8, a.nbytes, start).view(np.float32).reshape(2, 2)
        for start in (4, 5 + a.nbytes)
    ]

    (result,) = instance.execute(batch_of(member(a=views[0], b=views[1]))).results

    assert lists(result) == {"X": a.tolist(), "Y": b.tolist()}


def test_an_outcome_says_where_the_time_went_in_whole_nanoseconds(instance: Instance) -> None:
    outcome = instance.execute(batch_of(member(a=rows(1), b=rows(2))))

    spent = outcome.input_ns, outcome.infer_ns, outcome.output_ns
    assert all(isinstance(one, int) and one >= 0 for one in spent)
    assert 0 < sum(spent) < 60_000_000_000
    assert dict(outcome.parameters) == {}


def test_a_loaded_instance_is_ready_on_its_device_and_says_how_many_cores_it_takes(
    instance: Instance,
) -> None:
    assert (instance.ready, instance.device, instance.cores) == (True, "cpu", CPU.threads)


@of(CASES)
def test_an_instance_is_closed_from_another_thread_and_is_not_ready_then(
    case: Case, artefacts: Path, tmp_path: Path
) -> None:
    (instance,) = load_version(case, version_of(case, tmp_path, artefacts)).instances
    with ThreadPoolExecutor(1) as thread:
        thread.submit(instance.execute, batch_of(member(a=rows(1), b=rows(2)))).result()

    instance.close()

    assert not instance.ready


@of(REFUSING)
def test_a_problem_of_one_request_is_its_own_result_and_the_instance_goes_on(
    case: Case, tmp_path: Path
) -> None:
    assert case.rows is not None
    version = make_version(tmp_path, ROWS)
    version.config.backend = case.backend
    case.rows.write(version.path / case.rows.file)

    with running(case, version) as loaded:
        (instance,) = loaded.instances
        asked = [member(X=np.array([[value]])) for value in (2, 9, 1)]
        first, bad, last = instance.execute(batch_of(*asked)).results
        (after,) = instance.execute(batch_of(asked[0])).results

    assert isinstance(bad, ExecutionFailed)
    assert re.search(case.rows.complaint, str(bad), re.DOTALL)
    assert [lists(good) for good in (first, last, after)] == [
        {"Y": [[[2.0, 2.5]]]},
        {"Y": [[[1.0, 1.5]]]},
        {"Y": [[[2.0, 2.5]]]},
    ]


# Backend


@of(CASES)
def test_completing_names_the_backend_and_leaves_the_config_and_the_folder_alone(
    case: Case, artefacts: Path, tmp_path: Path
) -> None:
    version = version_of(case, tmp_path, artefacts)
    version.config.backend = ""
    written = version.config.SerializeToString()
    before = {path: path.read_bytes() for path in version.path.iterdir()}

    config = backend_of(case.backend).complete(version, DEFAULT_MAX_BATCH)

    assert config.backend == case.backend
    assert version.config.SerializeToString() == written
    assert {path: path.read_bytes() for path in version.path.iterdir()} == before


@of(CASES)
def test_what_a_config_says_stays_when_it_is_completed(
    case: Case, artefacts: Path, tmp_path: Path
) -> None:
    version = version_of(case, tmp_path, artefacts)

    config = backend_of(case.backend).complete(version, DEFAULT_MAX_BATCH)

    assert config.max_batch_size == 8
    assert [list(tensors) for tensors in (config.input, config.output)] == [
        list(tensors) for tensors in (version.config.input, version.config.output)
    ]


@of(KNOWING)
def test_an_empty_config_is_completed_from_the_file(
    case: Case, artefacts: Path, tmp_path: Path
) -> None:
    version = version_of(case, tmp_path, artefacts, config="")

    config = backend_of(case.backend).complete(version, DEFAULT_MAX_BATCH)

    whole = version_of(case, tmp_path / "whole", artefacts).config
    assert (list(config.input), list(config.output)) == (list(whole.input), list(whole.output))
    assert config.max_batch_size == DEFAULT_MAX_BATCH


@of(KNOWING)
def test_a_config_that_contradicts_the_file_is_refused_naming_field_value_and_file(
    case: Case, artefacts: Path, tmp_path: Path
) -> None:
    config = PAIRS.replace('"X" data_type: TYPE_FP32', '"X" data_type: TYPE_INT32')
    version = version_of(case, tmp_path, artefacts, config)

    with pytest.raises(LoadFailed) as caught:
        backend_of(case.backend).complete(version, DEFAULT_MAX_BATCH)

    for told in ("model 'm' version 1", "'X'", "is TYPE_INT32", f"{case.file} has FP32"):
        assert told in str(caught.value)


@of(CASES)
def test_the_config_that_is_served_has_every_input_and_output(
    case: Case, artefacts: Path, tmp_path: Path
) -> None:
    with running(case, version_of(case, tmp_path, artefacts)) as loaded:
        config = loaded.config

    assert config.backend == case.backend
    assert [tensor.name for tensor in (*config.input, *config.output)] == ["a", "b", "X", "Y"]


@of(IN_THIS_PROCESS)
def test_as_many_instances_are_loaded_as_are_asked_for_and_each_answers(
    case: Case, artefacts: Path, tmp_path: Path
) -> None:
    with running(case, version_of(case, tmp_path, artefacts), count=2) as loaded:
        answers = [
            lists(instance.execute(batch_of(member(a=rows(1), b=rows(2)))).results[0])
            for instance in loaded.instances
        ]

    assert answers == [{"X": rows(1).tolist(), "Y": rows(2).tolist()}] * 2


@of(WITH_A_FILE)
def test_a_missing_file_is_refused_naming_the_model_and_what_its_folder_has(
    case: Case, artefacts: Path, tmp_path: Path
) -> None:
    version = version_of(case, tmp_path, artefacts)
    (version.path / case.file).rename(version.path / "notes.txt")

    with pytest.raises(LoadFailed, match=r"(?s)^model 'm' version 1.*notes\.txt") as caught:
        load_version(case, version)

    assert case.file in str(caught.value)


@of(WITH_A_FILE)
def test_a_file_that_is_no_model_is_refused_naming_model_and_file(
    case: Case, artefacts: Path, tmp_path: Path
) -> None:
    version = version_of(case, tmp_path, artefacts)
    (version.path / case.file).write_bytes(b"PK\x03\x04 (not a model")

    with pytest.raises(LoadFailed, match=r"(?s)^model 'm' version 1.*" + case.complaint):
        load_version(case, version)
