"""Promises of `backends.seam` that the built-in steps keep; each has tensors of its own."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from backends.errors import LoadFailed, ModelError
from backends.registry import backend_of
from backends.seam import Instance, Result, Tensors
from support.pictures import column, file_of, gradient, step, step_config
from support.runtime import CPU, batch_of, make_version, member, with_config


@dataclass(frozen=True)
class Case:
    """A step, its parameters and files, `rows`: inputs of a request by a seed and a number of rows,
    `bad`: inputs that are refused, and the outputs it has."""

    backend: str
    parameters: Mapping[str, str]
    rows: Callable[[int, int], Tensors]
    bad: Tensors
    outputs: tuple[str, ...]
    files: Mapping[str, bytes]


def _pictures(seed: int, rows: int) -> Tensors:
    return {"IMAGE": column(*[file_of(gradient(40 + seed + row, 30)) for row in range(rows)])}


def _logits(seed: int, rows: int) -> Tensors:
    return {"LOGITS": np.random.default_rng(seed).normal(size=(rows, 3)).astype(np.float32)}


def _boxes(seed: int, rows: int) -> Tensors:
    """No box is left out: rows of one request differ in length otherwise."""
    corner = np.arange(2, dtype=np.float32) * 40 + seed
    boxes = np.stack([corner, corner, corner + 20, corner + 20], axis=-1)
    scores = np.random.default_rng(seed).uniform(0.5, 1, (rows, 2, 1)).astype(np.float32)
    return {"BOXES": np.repeat(boxes[None], rows, axis=0), "SCORES": scores}


def _texts(seed: int, rows: int) -> Tensors:
    return {"TEXT": column(*[b"a b" if (seed + row) % 2 else b"b c" for row in range(rows)])}


def tokenizer_file() -> bytes:
    words = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "a": 4, "b": 5, "c": 6}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return bytes(tokenizer.to_str(), "utf-8")


CASES = [
    Case(
        "image",
        {"size": "16"},
        _pictures,
        {"IMAGE": column(b"none")},
        ("PIXELS", "GEOMETRY"),
        {},
    ),
    Case(
        "classify",
        {"top_k": "2"},
        _logits,
        {"LOGITS": np.zeros((1, 4), np.float32)},
        ("LABELS", "SCORES", "INDICES", "JSON"),
        {"labels.txt": b"cat\ndog\nowl\n"},
    ),
    Case(
        "detect",
        {},
        _boxes,
        {"BOXES": np.zeros((1, 2, 4), np.float32), "SCORES": np.zeros((1, 3, 1), np.float32)},
        (
            "DETECTION_BOXES",
            "DETECTION_SCORES",
            "DETECTION_CLASSES",
            "DETECTION_LABELS",
            "NUM_DETECTIONS",
            "JSON",
        ),
        {},
    ),
    Case(
        "text",
        {},
        _texts,
        {"TEXT": column(b"\xff")},
        ("input_ids", "attention_mask", "token_type_ids"),
        {"tokenizer.json": tokenizer_file()},
    ),
]


@pytest.fixture(params=CASES, ids=lambda case: case.backend)
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


@pytest.fixture
def instance(case: Case, tmp_path: Path) -> Iterator[Instance]:
    made = step(tmp_path, case.backend, files=case.files, **case.parameters)
    yield made
    made.close()


def lists(result: Result) -> dict[str, object]:
    assert isinstance(result, Mapping), result
    return {name: array.tolist() for name, array in result.items()}


def test_a_request_is_answered_alone_as_in_a_batch_in_order(case: Case, instance: Instance) -> None:
    asked = [member(**case.rows(seed, rows)) for seed, rows in ((1, 2), (2, 1), (3, 3))]

    together = instance.execute(batch_of(*asked)).results
    alone = [instance.execute(batch_of(one)).results[0] for one in asked]

    assert [lists(result) for result in together] == [lists(result) for result in alone]
    for result, one in zip(together, asked, strict=True):
        assert isinstance(result, Mapping)
        assert {len(array) for array in result.values()} == {one.rows}


def test_rows_of_a_request_are_answered_as_requests_of_one_row(
    case: Case, instance: Instance
) -> None:
    rows = case.rows(5, 3)
    (whole,) = instance.execute(batch_of(member(**rows))).results

    for number in range(3):
        alone = {name: array[number : number + 1] for name, array in rows.items()}
        (one,) = instance.execute(batch_of(member(**alone))).results
        assert isinstance(whole, Mapping)
        assert lists(one) == lists({name: a[number : number + 1] for name, a in whole.items()})


def test_a_member_gets_the_outputs_it_wants_and_all_when_it_names_none(
    case: Case, instance: Instance
) -> None:
    last = case.outputs[-1]
    wanting = [member((last,), **case.rows(1, 1)), member(**case.rows(1, 1))]

    some, everything = instance.execute(batch_of(*wanting)).results

    assert list(lists(some)) == [last]
    assert sorted(lists(everything)) == sorted(case.outputs)


def test_inputs_stay_as_they_were_sent(case: Case, instance: Instance) -> None:
    sent = case.rows(1, 2)
    before = {name: array.copy() for name, array in sent.items()}
    for array in sent.values():
        array.flags.writeable = False

    instance.execute(batch_of(member(**sent)))

    assert lists(sent) == lists(before)


def test_a_problem_of_one_request_is_its_own_result_and_the_instance_goes_on(
    case: Case, instance: Instance
) -> None:
    good, bad = member(**case.rows(1, 1)), member(**case.bad)

    first, refused, last = instance.execute(batch_of(good, bad, good)).results
    (after,) = instance.execute(batch_of(good)).results

    assert isinstance(refused, ModelError)
    assert refused.code == "INVALID_ARG"
    assert "model 'm' version 1" in str(refused)
    assert lists(first) == lists(last) == lists(after)


def test_outputs_have_the_types_and_shapes_of_the_completed_config(
    case: Case, tmp_path: Path
) -> None:
    version = make_version(tmp_path, step_config(case.backend, case.parameters))
    for name, content in case.files.items():
        (version.path / name).write_bytes(content)
    backend = backend_of(case.backend)
    written = version.config.SerializeToString()
    config = backend.complete(version, 4)
    (instance,) = backend.load(with_config(version, config), CPU, 1).instances
    (result,) = instance.execute(batch_of(member(**case.rows(1, 2)))).results

    assert isinstance(result, Mapping)
    assert config.backend == case.backend
    assert version.config.SerializeToString() == written
    assert [tensor.name for tensor in config.output] == list(case.outputs)
    for tensor in config.output:
        shape = result[tensor.name].shape[1:]
        assert len(shape) == len(tensor.dims)
        assert all(want in (-1, have) for want, have in zip(tensor.dims, shape, strict=True))


def test_a_loaded_instance_takes_a_core_and_is_closed_from_another_thread(
    case: Case, instance: Instance
) -> None:
    assert (instance.ready, instance.device, instance.cores) == (True, "cpu", CPU.threads)
    with ThreadPoolExecutor(1) as thread:
        thread.submit(instance.close).result()
    assert not instance.ready


def test_a_reshape_and_an_unknown_tensor_are_refused(case: Case, tmp_path: Path) -> None:
    name = next(iter(case.rows(1, 1)))
    reshape = f'input {{ name: "{name}" reshape {{ shape: [] }} }}'
    unknown = 'input { name: "NONE" }'
    for tensors, text in ((reshape, "has a reshape"), (unknown, f"its inputs are: {name}")):
        version = make_version(tmp_path, step_config(case.backend, case.parameters, tensors))
        for file, content in case.files.items():
            (version.path / file).write_bytes(content)
        with pytest.raises(LoadFailed, match=text):
            backend_of(case.backend).complete(version, 4)
