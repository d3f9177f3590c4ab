"""The fields of `sequence_batching`, for `repository.config.field_table`. Pure.

Source of the fields: Triton's `ModelSequenceBatching`.
"""

from repository.config.field_rows import ConfigField, does

_AT = "sequence_batching"
_CONTROL = f"{_AT}.control_input.control"
_STATE = f"{_AT}.state"
_ARRAYS = ("onnxruntime", "pytorch", "identity", "python")

SEQUENCE_FIELDS: tuple[ConfigField, ...] = (
    does(
        _AT,
        "The requests of a sequence run in order on one instance; see [sequences](sequences.md).",
        "off",
        _ARRAYS,
    ),
    does(f"{_AT}.direct", "Each sequence keeps one row of the batch.", "this one"),
    does(
        f"{_AT}.direct.max_queue_delay_microseconds",
        "How long a batch may wait until `minimum_slot_utilization` is reached.",
        "0",
    ),
    does(
        f"{_AT}.direct.minimum_slot_utilization",
        "The share of slots with a request, from 0 to 1, with which a batch is not delayed.",
        "0",
    ),
    does(f"{_AT}.oldest", "The oldest requests of all candidates are batched dynamically."),
    does(f"{_AT}.oldest.max_candidate_sequences", "Sequences that an instance has at a time."),
    does(
        f"{_AT}.oldest.preferred_batch_size",
        "A batch of one of these sizes is not delayed.",
        "`max_batch_size`",
    ),
    does(
        f"{_AT}.oldest.max_queue_delay_microseconds",
        "How long a batch may wait to grow while an instance is free.",
        "0",
    ),
    does(
        f"{_AT}.oldest.preserve_ordering",
        "Responses are sent in the order of their requests. An instance's always are.",
        "`false`",
    ),
    does(
        f"{_AT}.max_sequence_idle_microseconds",
        "A sequence without a request for so long is over: its slot and its state are freed.",
        "1000000",
    ),
    does(f"{_AT}.control_input", "Inputs that tell the model of the sequence; clients do not send"
         " them."),
    does(f"{_AT}.control_input.name", "The model's input."),
    does(_CONTROL, "What it tells; one for each input."),
    does(
        f"{_CONTROL}.kind",
        "`CONTROL_SEQUENCE_START`, `CONTROL_SEQUENCE_READY` (the row is a request's), "
        "`CONTROL_SEQUENCE_END`, `CONTROL_SEQUENCE_CORRID`.",
    ),
    does(f"{_CONTROL}.int32_false_true", "Its two values, as INT32."),
    does(f"{_CONTROL}.fp32_false_true", "Its two values, as FP32."),
    does(f"{_CONTROL}.bool_false_true", "Its two values, as BOOL."),
    does(
        f"{_CONTROL}.data_type",
        "Of the correlation id: `TYPE_UINT64`, `TYPE_INT64`, `TYPE_UINT32`, `TYPE_INT32` (its "
        "lower 32 bits), `TYPE_STRING`.",
    ),
    does(_STATE, "Outputs that become inputs of the sequence's next request."),
    does(f"{_STATE}.input_name", "The model's input."),
    does(f"{_STATE}.output_name", "The model's output; clients get it if `output` lists it too."),
    does(f"{_STATE}.data_type", "`TYPE_FP32` and so on, of both."),
    does(f"{_STATE}.dims", "The shape, without the batch; -1 for any size, which begins as 1."),
    does(f"{_STATE}.initial_state", "What a sequence begins with.", "zeros, or empty texts"),
    does(f"{_STATE}.initial_state.name", "For messages."),
    does(f"{_STATE}.initial_state.data_type", "As the state's."),
    does(f"{_STATE}.initial_state.dims", "A shape that fits the state's `dims`.", "the state's"),
    does(f"{_STATE}.initial_state.zero_data", "Zeros, or empty texts."),
    does(
        f"{_STATE}.initial_state.data_file", "A file of raw bytes in `MODEL/initial_state/`."
    ),
    does(
        f"{_STATE}.use_same_buffer_for_input_output",
        "Accepted: an instance feeds the output as the next input whether it is given or not.",
        "`false`",
    ),
    does(
        f"{_STATE}.use_growable_memory",
        "Accepted: a state with a dimension of -1 may grow whether it is given or not.",
        "`false`",
    ),
    does(
        f"{_AT}.iterative_sequence",
        "A request is a sequence of its own: the model asks for further executions of it until it "
        "has answered.",
        "`false`",
    ),
)  # fmt: skip
