"""A bidirectional encoder's shape as data, read from each family's config.json; no torch."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from backends.llm.config.fields import ConfigFields
from backends.llm.errors import BadCheckpoint

EncoderActivation = Literal["gelu", "gelu_tanh", "relu"]
_ACTIVATIONS: dict[str, EncoderActivation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}


MAX_LAYERS = 1024


@dataclass(frozen=True, slots=True)
class EncoderConfig:
    """A BERT-like encoder: learned positions, layer norms after each half of a layer, biases.

    `positions`: the longest text, in tokens. `first_position`: where positions begin in their
    table. `types`: rows of the token-type table, of which the first is added everywhere; 0 for
    none. `names`: how the checkpoint names its tensors.
    """

    family: str
    vocabulary: int
    hidden: int
    heads: int
    layers: int
    width: int
    positions: int
    eps: float
    activation: EncoderActivation = "gelu"
    first_position: int = 0
    types: int = 0
    names: Literal["bert", "distilbert"] = "bert"

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads


def read_encoder(family: str, fields: ConfigFields) -> EncoderConfig:
    """Raises BadCheckpoint naming the field; `family` is one of ENCODERS."""
    config = ENCODERS[family](fields)
    if config.hidden % config.heads:
        raise fields.refuse("hidden_size", f"a multiple of the {config.heads} attention heads")
    return config


def _bert(fields: ConfigFields) -> EncoderConfig:
    kind = fields.text("position_embedding_type", "absolute")
    if kind != "absolute":
        raise fields.refuse("position_embedding_type", "'absolute'")
    if fields.flag("is_decoder", False):
        raise fields.refuse("is_decoder", "false: only encoders are supported of this family")
    hidden = fields.count("hidden_size")
    if fields.count("embedding_size", hidden) != hidden:
        raise fields.refuse("embedding_size", f"the hidden_size, {hidden}")
    return EncoderConfig(
        family=fields.text("model_type"),
        vocabulary=fields.count("vocab_size"),
        hidden=hidden,
        heads=fields.count("num_attention_heads"),
        layers=fields.count("num_hidden_layers", most=MAX_LAYERS),
        width=fields.count("intermediate_size"),
        positions=fields.count("max_position_embeddings"),
        eps=fields.number("layer_norm_eps", 1e-12),
        activation=_activation(fields, "hidden_act"),
        types=fields.count("type_vocab_size", 2),
    )


def _roberta(fields: ConfigFields) -> EncoderConfig:
    """Positions begin after the padding token's number."""
    config = _bert(fields)
    padding = fields.values.get("pad_token_id", 1)
    if isinstance(padding, bool) or not isinstance(padding, int) or padding < 0:
        raise fields.refuse("pad_token_id", "a whole number")
    first = padding + 1
    if config.positions <= first:
        raise fields.refuse("max_position_embeddings", f"more than pad_token_id + 1 = {first}")
    return EncoderConfig(
        family=config.family,
        vocabulary=config.vocabulary,
        hidden=config.hidden,
        heads=config.heads,
        layers=config.layers,
        width=config.width,
        positions=config.positions - first,
        eps=config.eps,
        activation=config.activation,
        first_position=first,
        types=config.types,
    )


def _distilbert(fields: ConfigFields) -> EncoderConfig:
    return EncoderConfig(
        family="distilbert",
        vocabulary=fields.count("vocab_size"),
        hidden=fields.count("dim"),
        heads=fields.count("n_heads"),
        layers=fields.count("n_layers", most=MAX_LAYERS),
        width=fields.count("hidden_dim"),
        positions=fields.count("max_position_embeddings"),
        eps=1e-12,
        activation=_activation(fields, "activation"),
        names="distilbert",
    )


def _activation(fields: ConfigFields, name: str) -> EncoderActivation:
    given = fields.text(name, "gelu")
    if given not in _ACTIVATIONS:
        raise BadCheckpoint(
            f"{fields.source}: '{name}' is '{given:.80}'; it must be one of "
            f"{', '.join(_ACTIVATIONS)}"
        )
    return _ACTIVATIONS[given]


ENCODERS: dict[str, Callable[[ConfigFields], EncoderConfig]] = {
    "bert": _bert,
    "camembert": _roberta,
    "distilbert": _distilbert,
    "roberta": _roberta,
    "xlm-roberta": _roberta,
}
