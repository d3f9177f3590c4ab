"""What a config says of rotary positions; no torch. `backends.llm.model.rope` computes with it."""

from backends.llm.config.decoder import RopeConfig
from backends.llm.config.fields import ConfigFields
from backends.llm.errors import BadCheckpoint

KINDS = ("default", "linear", "llama3", "yarn", "longrope")
_OLD_NAMES = {"su": "longrope"}


def read_rope(
    fields: ConfigFields,
    head_dim: int,
    positions: int,
    layer_type: str = "",
    theta: float = 10_000.0,
) -> RopeConfig:
    """From `rope_parameters` (transformers 5) or `rope_theta` and `rope_scaling` (before).

    `layer_type`: whose parameters, in a config that has them by type of layer.
    """
    given = (
        fields.within("rope_parameters")
        or fields.within("rope_scaling")
        or ConfigFields({}, "rope")
    )
    given = given.within(layer_type) or given
    named = given.text("rope_type", given.text("type", "default"))
    kind = _OLD_NAMES.get(named, named)
    if kind not in KINDS:
        raise BadCheckpoint(
            f"{given.source}: rope_type is '{named}'; supported are {', '.join(KINDS)}"
        )
    base = RopeConfig(
        kind="default",
        theta=_theta(given, fields, theta),
        dims=_dims(given, fields, head_dim),
    )
    return base if kind == "default" else _READERS[kind](given, fields, base, positions)


def _theta(given: ConfigFields, fields: ConfigFields, default: float) -> float:
    """More than 1, or all pairs of dimensions turn alike."""
    theta = given.number("rope_theta", fields.number("rope_theta", default))
    if theta <= 1:
        raise (given if "rope_theta" in given.values else fields).refuse(
            "rope_theta", "a number above 1"
        )
    return theta


def _dims(given: ConfigFields, fields: ConfigFields, head_dim: int) -> int:
    """Dimensions of a head that turn: the kernels write as many, and a head has no more."""
    name = "partial_rotary_factor"
    share = given.number(name, fields.number(name, 1.0))
    dims = int(head_dim * min(share, 2.0))
    if not 0 < dims <= head_dim or dims % 2:
        raise (given if name in given.values else fields).refuse(
            name, f"a share of head_dim = {head_dim} that is an even number of dimensions"
        )
    return dims


def _linear(
    given: ConfigFields, fields: ConfigFields, base: RopeConfig, positions: int
) -> RopeConfig:
    return RopeConfig("linear", base.theta, base.dims, given.number("factor"))


def _llama3(
    given: ConfigFields, fields: ConfigFields, base: RopeConfig, positions: int
) -> RopeConfig:
    if given.number("low_freq_factor") == given.number("high_freq_factor"):
        raise given.refuse("high_freq_factor", "another number than low_freq_factor")
    return RopeConfig(
        "llama3",
        base.theta,
        base.dims,
        given.number("factor"),
        given.count("original_max_position_embeddings", positions),
        given.number("low_freq_factor"),
        given.number("high_freq_factor"),
    )


def _yarn(
    given: ConfigFields, fields: ConfigFields, base: RopeConfig, positions: int
) -> RopeConfig:
    original = given.count("original_max_position_embeddings", positions)
    return RopeConfig(
        "yarn",
        base.theta,
        base.dims,
        given.number("factor", positions / original),
        original,
        given.number("beta_slow", 1.0),
        given.number("beta_fast", 32.0),
        given.optional_number("attention_factor"),
        (given.optional_number("mscale") or 0.0, given.optional_number("mscale_all_dim") or 0.0),
        given.flag("truncate", True),
    )


def _longrope(
    given: ConfigFields, fields: ConfigFields, base: RopeConfig, positions: int
) -> RopeConfig:
    written = fields.count("original_max_position_embeddings", positions)
    original = given.count("original_max_position_embeddings", written)
    if original < 2:
        raise given.refuse("original_max_position_embeddings", "at least 2")
    short, long = given.numbers("short_factor"), given.numbers("long_factor")
    for name, factors in (("short_factor", short), ("long_factor", long)):
        if len(factors) != base.dims // 2 or not all(0 < one < 1e12 for one in factors):
            wanted = f"{base.dims // 2} positive numbers, one for each pair of dimensions"
            raise given.refuse(name, wanted)
    return RopeConfig(
        "longrope",
        base.theta,
        base.dims,
        given.number("factor", positions / original),
        original,
        amplitude=given.optional_number("attention_factor"),
        short=short,
        long=long,
    )


_READERS = {"linear": _linear, "llama3": _llama3, "yarn": _yarn, "longrope": _longrope}
