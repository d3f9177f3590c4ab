"""Torch networks before they are converted."""

from pathlib import Path

import numpy as np
import pytest
from tritonclient.grpc import model_config_pb2 as pb

from jobs.tools.convert.signatures import require_inputs
from jobs.tools.networks.tensors import NetworkTensor
from jobs.tools.work import WorkRefused
from support.convert_sources import encoder_source, set_checkpoint_field

torch = pytest.importorskip("torch")

INPUT = NetworkTensor("x", np.float32, (None, 2))


def test_a_dictionary_without_the_config_s_outputs_is_refused() -> None:
    from jobs.tools.convert.torch_export import TorchNetwork, torch_runner

    network = TorchNetwork(lambda x: {"logits": x, "more": x}, [INPUT], ["SCORES"])
    with pytest.raises(WorkRefused, match=r"answers 2 tensors \(logits, more\); .* lists SCORES"):
        torch_runner(network)({"x": np.ones((1, 2), np.float32)})


def test_a_tensor_without_a_type_is_refused_by_name() -> None:
    config = pb.ModelConfig(input=[pb.ModelInput(name="x")], output=[pb.ModelOutput(name="y")])
    with pytest.raises(WorkRefused, match="gives 'x' the type TYPE_INVALID"):
        require_inputs(config, "model.pt")


def _drop_tensor(folder: Path, name: str) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    del tensors[name]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.slow
def test_a_checkpoint_that_lacks_tensors_is_not_filled_with_random_ones(tmp_path: Path) -> None:
    from jobs.tools.convert.hugging_face import _loaded

    source = encoder_source(tmp_path / "source")
    fields = {"architectures": ["BertForSequenceClassification"]}
    _loaded(source, fields, "the checkpoint")
    _drop_tensor(source, "classifier.weight")
    with pytest.raises(WorkRefused, match=r"lacks the tensors classifier\.weight, which"):
        _loaded(source, fields, "the checkpoint")


@pytest.mark.slow
def test_a_checkpoint_whose_tensors_have_other_shapes_is_refused(tmp_path: Path) -> None:
    from jobs.tools.convert.hugging_face import _loaded

    source = set_checkpoint_field(encoder_source(tmp_path / "source"), num_labels=7)
    fields = {"architectures": ["BertForSequenceClassification"]}
    with pytest.raises(
        WorkRefused, match=r"has other shapes of the tensors classifier\.bias, classifier"
    ):
        _loaded(source, fields, "the checkpoint")
