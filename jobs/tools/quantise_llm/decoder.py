"""A decoder of which one layer at a time has weights, in float32, as transformers computes it."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from jobs.tools.quantise_llm.checkpoint import CheckpointReader
from jobs.tools.work import refuse

ROWS_OF_LOGITS = 256
"""Logits that exist at a time: 256 of a vocabulary of 150,000 are 150 MB."""


class LayeredDecoder:
    """The walk over a checkpoint: `embed`, each `layer` in turn with `through`, then `losses`."""

    def __init__(self, checkpoint: CheckpointReader) -> None:
        import transformers

        self._checkpoint = checkpoint
        try:
            config = transformers.AutoConfig.from_pretrained(
                checkpoint.folder, local_files_only=True, trust_remote_code=False
            )
            config._attn_implementation = "sdpa"
            with torch.device("meta"):
                make: Any = transformers.AutoModelForCausalLM.from_config
                self._model = make(config, dtype=torch.float32)
        except Exception as error:  # noqa: BLE001 - transformers raises many classes
            refuse(f"config.json describes no decoder that transformers makes: {error!s:.300}")
        self._model.eval()
        body = self._model.model
        body.rotary_emb = type(body.rotary_emb)(config=config)
        self._layers = list(body.layers)
        self.count = len(self._layers)
        self._call: dict[str, Any] = {}

    def embed(self, tokens: Tensor) -> Tensor:
        """What the first layer is given, float32 [rows, length, hidden]."""
        body = self._model.model
        self._fill(body.embed_tokens, "model.embed_tokens.")
        body.layers = nn.ModuleList([_Catcher(self._layers[0])])
        streams = []
        with torch.no_grad():
            for row in tokens:
                try:
                    body(input_ids=row[None], use_cache=False)
                except _CaughtError as caught:
                    streams.append(caught.stream)
                    self._call = caught.call
        return torch.cat(streams)

    def layer(self, index: int) -> nn.Module:
        """The layer with its weights; it loses them by `drop`."""
        layer: nn.Module = self._layers[index]
        self._fill(layer, f"model.layers.{index}.")
        return layer

    def drop(self, index: int) -> None:
        """Free the layer's weights."""
        self._layers[index].to("meta")

    def through(self, layer: nn.Module, streams: Tensor) -> None:
        """Send rows through a layer, in place."""
        with torch.no_grad():
            for at in range(len(streams)):
                found = layer(streams[at : at + 1], **self._call)
                streams[at] = (found[0] if isinstance(found, tuple) else found)[0]

    def perplexity(self, streams: Tensor, tokens: Tensor) -> float:
        """Of every token but each row's first, for what the last layer gave."""
        norm, head = self._model.model.norm, self._model.lm_head
        self._fill(norm, "model.norm.")
        tied = "lm_head.weight" not in self._checkpoint
        self._fill(head, "model.embed_tokens." if tied else "lm_head.")
        scaling = float(getattr(self._model.config, "logits_scaling", 1.0) or 1.0)
        total = 0.0
        with torch.no_grad():
            for stream, row in zip(streams, tokens, strict=True):
                for first in range(0, len(row) - 1, ROWS_OF_LOGITS):
                    last = min(first + ROWS_OF_LOGITS, len(row) - 1)
                    logits = head(norm(stream[first:last])) / scaling
                    total += float(
                        cross_entropy(logits, row[first + 1 : last + 1], reduction="sum")
                    )
        return float(torch.tensor(total / (tokens.numel() - len(tokens))).exp())

    def _fill(self, module: nn.Module, prefix: str) -> None:
        tensors = {name: tensor.float() for name, tensor in self._checkpoint.below(prefix).items()}
        module.to_empty(device="cpu")
        try:
            module.load_state_dict(tensors)
        except RuntimeError as error:
            refuse(f"the tensors '{prefix}…' are not those that config.json asks for: {error}")


class _CaughtError(Exception):
    """What the first layer is called with; ends the pass."""

    def __init__(self, stream: Tensor, call: dict[str, Any]) -> None:
        super().__init__()
        self.stream = stream
        self.call = call


class _Catcher(nn.Module):
    """Stands for the first layer, with whatever attributes the model reads of it."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        for name in ("attention_type", "layer_type"):
            if hasattr(layer, name):
                setattr(self, name, getattr(layer, name))

    def forward(self, stream: Tensor, *given: Any, **call: Any) -> Tensor:
        raise _CaughtError(stream, call)


def linears_of(layer: nn.Module) -> dict[str, nn.Linear]:
    """The linears of a layer by name."""
    return {name: one for name, one in layer.named_modules() if isinstance(one, nn.Linear)}
