"""What a checkpoint's `architectures` says it was made for; no torch.

The body of a classifier looks like any other, and would generate or embed noise.
"""

import re

from backends.llm.config.encoder import ENCODERS
from backends.llm.config.fields import ConfigFields
from backends.llm.errors import BadCheckpoint

_HEAD = re.compile(r"For([A-Z]\w*)$")
_SERVED = ("CausalLM", "MaskedLM", "PreTraining", "ConditionalGeneration")
_KNOWN = {
    "SequenceClassification": "a sequence classifier (or reranker)",
    "TokenClassification": "a token classifier",
    "QuestionAnswering": "a model that marks answers in a text",
    "MultipleChoice": "a model that chooses among texts",
}


def refuse_other_tasks(fields: ConfigFields) -> None:
    """Raise BadCheckpoint for a config.json whose model was made for neither text nor vectors."""
    listed = fields.values.get("architectures")
    if listed is None:
        return
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
        raise fields.refuse("architectures", "a list of strings")
    for name in listed:
        head = _HEAD.search(name)
        if head is not None and head[1] not in _SERVED:
            raise BadCheckpoint(
                f"{fields.source}: 'architectures' has '{name:.80}', "
                f"{_KNOWN.get(head[1], 'a model for another task')}; served are models that "
                "generate (…ForCausalLM) and models that embed: encoders without such a head "
                f"({', '.join(sorted(ENCODERS))}) and decoders with a pooling. Classification and "
                "reranking are not offered yet"
            )
