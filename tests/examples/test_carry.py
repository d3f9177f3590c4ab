"""What `modelyard demo` carries is the digits example."""

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from examples.digits.carry import DEMO, PICTURE, request
from examples.digits.images import split

CARRIED = DEMO / "models" / "digits"


@pytest.mark.parametrize("name", ["config.pbtxt", "labels.txt"])
def test_its_config_is_the_examples(name: str) -> None:
    example = Path(__file__).parents[2] / "examples" / "digits" / name
    assert (CARRIED / name).read_text() == example.read_text()


@pytest.mark.parametrize("version", ["1", "2"])
def test_its_networks_read_as_those_that_are_trained_now(repository: Path, version: str) -> None:
    """Two machines round differently; the pictures that both read alike are nearly all."""
    images = split().held_out.images
    carried, trained = (
        onnxruntime.InferenceSession(folder / version / "model.onnx").run(None, {"IMAGE": images})
        for folder in (CARRIED, repository / "digits")
    )
    assert np.mean(carried[0].argmax(axis=1) == trained[0].argmax(axis=1)) > 0.97


def test_its_picture_is_one_that_no_network_has_seen() -> None:
    assert json.loads((DEMO / "request.json").read_text()) == request()
    assert split().held_out.labels[PICTURE] == 2
