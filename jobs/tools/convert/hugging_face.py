"""Folders of Hugging Face encoders (config.json, *.safetensors) to ONNX."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from tritonclient.grpc import model_config_pb2 as pb

from control.jobs.specs.convert import ConvertSpec
from jobs.tools.convert.onnx_results import onnx_config, open_onnx
from jobs.tools.convert.signatures import write_signature
from jobs.tools.convert.source_network import SourceNetwork
from jobs.tools.convert.torch_export import TorchNetwork, example_of, export, torch_runner
from jobs.tools.networks.files import first_line, version_name
from jobs.tools.networks.tensors import NetworkTensor
from jobs.tools.work import refuse

_ORDERS = {
    "auto": ("torchscript", "dynamo"), "torchscript": ("torchscript",), "dynamo": ("dynamo",),
}  # fmt: skip
_RESULTS = ("logits", "last_hidden_state", "pooler_output", "image_embeds", "text_embeds")
"""Outputs that are kept, of those that a model has."""
_SHOWN = 5


class NamedOutputs(torch.nn.Module):
    """A model whose inputs come in a fixed order, and whose outputs are those of a given list."""

    def __init__(self, model: Any, inputs: list[str]) -> None:
        super().__init__()
        self.model = model
        self.inputs = inputs

    def forward(self, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Tensors by position → the outputs of `_RESULTS` that the model has."""
        found = self.model(**dict(zip(self.inputs, given, strict=True)), return_dict=True)
        return tuple(found[name] for name in _RESULTS if found.get(name) is not None)


def open_source(path: Path, config: pb.ModelConfig, spec: ConvertSpec) -> SourceNetwork:
    """The model of the folder, on one thread. Refuses decoders, custom code and damaged files."""
    what = f"the checkpoint of {version_name(spec)}"
    fields = _checked_fields(path, what)
    model = _loaded(path.parent, fields, what)
    try:
        inputs = _inputs(model)
    except (AttributeError, TypeError, ValueError) as error:
        refuse(f"{what}: config.json does not tell the inputs' sizes: {first_line(error)}")
    # The outermost module is set to evaluation: the exporter puts modes back recursively.
    wrapped = NamedOutputs(model, [one.name for one in inputs]).eval()
    network = TorchNetwork(wrapped, inputs, (), variadic=True)
    network = network._replace(outputs=_output_names(network))
    result = onnx_config(config, spec.model)
    shown = _described(network)
    write_signature(result, inputs, shown)
    result.max_batch_size = config.max_batch_size or spec.max_batch_size
    return SourceNetwork(
        f"a Hugging Face {type(model).__name__}", inputs, torch_runner(network),
        lambda folder: export(network, example_of(network), folder, _ORDERS[spec.exporter], what),
        open_onnx, result, ("transformers", "torch", "safetensors", "onnx"),
    )  # fmt: skip


def _checked_fields(path: Path, what: str) -> dict[str, Any]:
    try:
        fields: dict[str, Any] = json.loads(path.read_bytes())
        architecture = str((fields.get("architectures") or [""])[0])
    except (ValueError, AttributeError, TypeError, LookupError, OSError) as error:
        refuse(f"{what} has a config.json that cannot be read: {error}")
    if "auto_map" in fields:
        refuse(f"{what} needs code of its own (auto_map), which is not run")
    if architecture.endswith(("ForCausalLM", "LMHeadModel")) or fields.get("is_decoder"):
        refuse(f"{what} is a decoder ({architecture}): serve the folder itself, by backend llm")
    if fields.get("is_encoder_decoder"):
        refuse(f"{what} has an encoder and a decoder ({architecture}); only encoders are converted")
    if not hasattr(transformers, architecture or "?"):
        refuse(f"{what} names the architecture '{architecture}', which transformers does not have")
    return fields


def _loaded(folder: Path, fields: dict[str, Any], what: str) -> Any:
    kind = getattr(transformers, fields["architectures"][0])
    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    try:
        model, loaded = kind.from_pretrained(
            folder, local_files_only=True, use_safetensors=True, trust_remote_code=False,
            attn_implementation="eager", dtype=torch.float32, output_loading_info=True,
            ignore_mismatched_sizes=True,
        )  # fmt: skip
    except Exception as error:  # noqa: BLE001 - transformers raises many classes
        refuse(f"{what} cannot be loaded: {first_line(error)}")
    _check_complete(loaded, what)
    model.config.use_cache = False
    return model.eval()


def _check_complete(loaded: Mapping[str, Any], what: str) -> None:
    """transformers fills tensors that the files lack with random numbers."""
    for field, wrong in (("missing_keys", "lacks"), ("mismatched_keys", "has other shapes of")):
        if keys := loaded.get(field):
            names = sorted(str(key if isinstance(key, str) else key[0]) for key in keys)
            more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            refuse(
                f"{what} {wrong} the tensors {', '.join(names[:_SHOWN])}{more}, which its "
                "config.json asks for; save the whole model with save_pretrained"
            )


def _inputs(model: Any) -> list[NetworkTensor]:
    if model.main_input_name == "pixel_values":
        size = int(model.config.image_size)
        channels = int(getattr(model.config, "num_channels", 3))
        return [NetworkTensor("pixel_values", np.float32, (None, channels, size, size))]
    names = ["input_ids", "attention_mask"]
    if int(getattr(model.config, "type_vocab_size", 0) or 0) > 1:
        names.append("token_type_ids")
    return [NetworkTensor(name, np.int64, (None, None)) for name in names]


def _output_names(network: TorchNetwork) -> list[str]:
    example = example_of(network)
    given = dict(zip((one.name for one in network.inputs), example, strict=True))
    try:
        with torch.no_grad():
            found = dict(network.module.model(**given, return_dict=True))
    except Exception as error:  # noqa: BLE001 - a model raises what it likes
        refuse(f"the model does not run on {', '.join(given)}: {first_line(error)}")
    names = [name for name in _RESULTS if found.get(name) is not None]
    if not names:
        refuse(f"the model answers {', '.join(found)}; one of {', '.join(_RESULTS)} is needed")
    return names


def _described(network: TorchNetwork) -> list[NetworkTensor]:
    """Outputs as the config has them: where they follow the length of the text, it is open."""
    example = example_of(network)
    with torch.no_grad():
        found = network.module(*example)
    length = example[0].shape[1] if network.inputs[0].name == "input_ids" else -1
    return [
        NetworkTensor(
            name, value.numpy().dtype,
            (None, *(None if axis == 0 and size == length and value.ndim > 2 else size
                     for axis, size in enumerate(value.shape[1:]))),
        )
        for name, value in zip(network.outputs, found, strict=True)
    ]  # fmt: skip
