"""What a model's config says of its sequences, for `schedulers.policy.sequences`.

Source of the fields: Triton's `ModelSequenceBatching`.
"""

import math
import os

from tritonclient.grpc import model_config_pb2 as pb

from repository.model import ModelConfig
from schedulers.policy.merge import MergeRules
from schedulers.policy.slots import SequenceRules

_CORRID = pb.ModelSequenceBatching.Control.CONTROL_SEQUENCE_CORRID


def sequence_rules(config: ModelConfig, max_waiting: int) -> SequenceRules:
    """The rules of a completed config whose scheduler is `sequence_batching`; `max_waiting`
    requests may wait."""
    sequences = config.sequence_batching
    direct, oldest = sequences.direct, sequences.oldest
    is_direct = not sequences.HasField("oldest")
    rows = max(1, config.max_batch_size)
    return SequenceRules(
        direct=is_direct,
        slots=rows if is_direct else oldest.max_candidate_sequences,
        idle_ns=sequences.max_sequence_idle_microseconds * 1000,
        max_waiting=max_waiting,
        merge=MergeRules(
            max_rows=config.max_batch_size,
            preferred=frozenset(oldest.preferred_batch_size),
            delay_ns=oldest.max_queue_delay_microseconds * 1000,
            batched=config.max_batch_size > 0,
        ),
        delay_ns=direct.max_queue_delay_microseconds * 1000 if is_direct else 0,
        least=math.ceil(direct.minimum_slot_utilization * rows),
        iterative=sequences.iterative_sequence,
        numeric_keys=_numeric_keys(config),
        hold_until=int(os.environ.get("TRITONSERVER_DELAY_SCHEDULER") or 0),
        hold_backlog=int(os.environ.get("TRITONSERVER_BACKLOG_DELAY_SCHEDULER") or 0),
    )


def _numeric_keys(config: ModelConfig) -> str:
    for control_input in config.sequence_batching.control_input:
        for control in control_input.control:
            if control.kind == _CORRID and control.data_type != pb.TYPE_STRING:
                return str(pb.DataType.Name(control.data_type))
    return ""
