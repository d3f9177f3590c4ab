"""Tiny random embedding checkpoints made with transformers, in sentence-transformers' layout."""

import json
import warnings
from pathlib import Path
from typing import Any

import torch

from support.llm import SMALL, make_checkpoint

LONGEST = 96
BERT = {
    "vocab_size": 160,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "max_position_embeddings": LONGEST,
    "pad_token_id": 0,
}
ROBERTA = BERT | {"max_position_embeddings": LONGEST + 2, "pad_token_id": 1, "type_vocab_size": 1}
DISTILBERT = {
    "vocab_size": 160,
    "dim": 64,
    "n_layers": 2,
    "n_heads": 4,
    "hidden_dim": 96,
    "max_position_embeddings": LONGEST,
}
ENCODER_VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("Bert", BERT),
    "bert-relu": ("Bert", BERT | {"hidden_act": "relu", "layer_norm_eps": 1e-6}),
    "roberta": ("Roberta", ROBERTA),
    "xlm-roberta": ("XLMRoberta", ROBERTA | {"hidden_act": "gelu_new"}),
    "camembert": ("Camembert", ROBERTA),
    "distilbert": ("DistilBert", DISTILBERT),
}
DECODER_VARIANTS = ("qwen3", "llama", "gemma2")


def make_encoder(variant: str, folder: Path, head: bool = False) -> Any:
    """Save a random float32 encoder; the transformers model. `head`: with a masked-word head, whose
    checkpoint has other names."""
    import transformers

    transformers.logging.set_verbosity_error()
    torch.manual_seed(sum(variant.encode()))
    name, fields = ENCODER_VARIANTS[variant]
    config = getattr(transformers, f"{name}Config")(**fields)
    kind = f"{name}ForMaskedLM" if head else f"{name}Model"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = getattr(transformers, kind)(config).eval()
        for parameter in model.parameters():
            parameter.data += torch.randn_like(parameter) * 0.05
        model.save_pretrained(folder)
    return model.base_model if head else model


def make_embedding_decoder(variant: str, folder: Path) -> Any:
    """The same of a decoder, saved without its head, as such models come."""
    model = make_checkpoint(variant, folder).model
    for path in folder.glob("*.safetensors"):
        path.unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.save_pretrained(folder)
    assert model.config.vocab_size == SMALL["vocab_size"]
    return model


def say_pooling(folder: Path, mode: str, *, normalise: bool = True) -> None:
    """`modules.json` and the pooling module, as sentence-transformers writes them."""
    types = ["Transformer", "Pooling", *(["Normalize"] if normalise else [])]
    modules = [
        {"idx": index, "name": str(index), "path": f"{index}_{name}" if index else "",
         "type": f"sentence_transformers.models.{name}"}
        for index, name in enumerate(types)
    ]  # fmt: skip
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    modes = ("mean_tokens", "cls_token", "lasttoken", "max_tokens")
    config = {f"pooling_mode_{one}": one == mode for one in modes}
    written = {"word_embedding_dimension": 64, **config}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(written))


@torch.inference_mode()
def rows_of(model: Any, text: tuple[int, ...]) -> torch.Tensor:
    """A text alone through transformers: the last layer's rows."""
    found: torch.Tensor = model(torch.tensor([text])).last_hidden_state[0]
    return found
