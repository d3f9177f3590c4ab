"""The longest text an embedding checkpoint names, and the case it reads; no torch.

Read as sentence-transformers reads it: `sentence_bert_config.json` first, then the tokenizer's own
`model_max_length`. A stored `truncation` or `padding` of tokenizer.json says nothing.
"""

from pathlib import Path

from backends.llm.config.fields import ConfigFields, read_fields

CONFIGS = tuple(
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
"""The names that sentence-transformers looks for, in its order."""
TOKENIZER_CONFIG = "tokenizer_config.json"


def read_longest(folder: Path) -> int | None:
    """Tokens of one text, special ones included; None where no file says. Raises BadCheckpoint."""
    sentence = _first(folder, CONFIGS)
    longest = None if sentence is None else _count(sentence, "max_seq_length")
    if longest is not None:
        return longest
    tokenizer = _first(folder, (TOKENIZER_CONFIG,))
    return None if tokenizer is None else _count(tokenizer, "model_max_length")


def reads_lowercase(folder: Path) -> bool:
    """Every text is lowered before it becomes tokens. Raises BadCheckpoint."""
    sentence = _first(folder, CONFIGS)
    return sentence is not None and sentence.flag("do_lower_case", False)


def _first(folder: Path, names: tuple[str, ...]) -> ConfigFields | None:
    found = next((folder / name for name in names if (folder / name).is_file()), None)
    return None if found is None else read_fields(found)


def _count(fields: ConfigFields, name: str) -> int | None:
    """transformers writes 10**30 (at times as a float) for a tokenizer without a limit."""
    value = fields.values.get(name)
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 1 << 31:
        return None
    return None if value is None else fields.count(name)
