"""Which checkpoints with weights in fewer bits are read, by `quantization_config`; no torch.

The formats "pack-quantized" and "int-quantized" of compressed-tensors, as vLLM serves them, with
the bits and groups that the engine computes with.
"""

from backends.llm.config.fields import ConfigFields
from backends.llm.config.precision import GROUP
from backends.llm.errors import BadCheckpoint

METHOD = "compressed-tensors"
FORMATS = ("pack-quantized", "int-quantized")
IN_PLACE = ("weight", "static")
"""Orders in which columns were rounded that leave the groups as they lie; the others (group,
dynamic) come with a group's number for each column."""


def check_stored_bits(fields: ConfigFields) -> None:
    """Raises BadCheckpoint naming the field whose value is not read."""
    config = fields.within("quantization_config")
    if config is None:
        return
    method = config.text("quant_method", "")
    if method != METHOD:
        raise BadCheckpoint(
            f"config.json: 'quantization_config' says the weights are quantised already, by "
            f"'{method}'; only '{METHOD}' is read. Give the original bfloat16 checkpoint, and it "
            "is quantised while it loads"
        )
    if config.text("format", "") not in FORMATS:
        raise config.refuse("format", f"one of {', '.join(FORMATS)}")
    if config.values.get("transform_config"):
        raise config.refuse("transform_config", "absent: no weights are transformed back")
    groups = config.within("config_groups")
    if groups is None or not groups.values:
        raise config.refuse("config_groups", "an object with the groups of linears")
    for name in groups.values:
        group = groups.within(name)
        weights = None if group is None else group.within("weights")
        if weights is None:
            raise groups.refuse(name, "an object with 'weights'")
        _check_weights(weights)
        assert group is not None
        _check_activations(group)


def _check_weights(weights: ConfigFields) -> None:
    if weights.text("type", "int") != "int":
        raise weights.refuse("type", "'int'")
    if not weights.flag("symmetric", True):
        raise weights.refuse("symmetric", "true")
    order = weights.values.get("actorder")
    if order is not None and order is not False and order not in IN_PLACE:
        raise weights.refuse("actorder", f"null or one of {', '.join(IN_PLACE)}")
    bits, strategy = weights.count("num_bits"), weights.text("strategy", "channel")
    grouped = bits == 4 and strategy == "group" and weights.values.get("group_size") == GROUP
    if not grouped and not (bits == 8 and strategy == "channel"):
        raise weights.refuse(
            "num_bits",
            f"4 with the strategy 'group' and group_size {GROUP}, or 8 with the strategy "
            f"'channel' (strategy is '{strategy}', group_size "
            f"{weights.values.get('group_size')})",
        )


def _check_activations(group: ConfigFields) -> None:
    """The engine finds the range of each token as it computes."""
    inputs = group.within("input_activations")
    if inputs is not None and inputs.values.get("dynamic") is not True:
        raise inputs.refuse("dynamic", "true")
    if group.within("output_activations") is not None:
        raise group.refuse("output_activations", "null")
