"""How a language model answers where a request does not say: its sampling defaults. Pure.

From the checkpoint's generation_config.json, as vLLM and SGLang take them, and from parameters of
config.pbtxt, which win. Read by the backend, and by the console, which shows them.
"""

from collections.abc import Mapping
from typing import Any

FILE = "generation_config.json"
SWITCH = "generation_config"
"""The parameter that says "ignore" where the file's numbers are not wanted."""
SWITCHES = ("auto", "ignore")

_RANGES: dict[str, tuple[float, float]] = {
    "temperature": (0.0, 100.0),
    "top_k": (0, 1 << 31),
    "top_p": (1e-9, 1.0),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (0.01, 100.0),
    "max_tokens": (1, (1 << 31) - 1),
}
_WHOLE = ("top_k", "max_tokens")
NAMES = tuple(_RANGES)
_IN_FILE = {"max_tokens": "max_new_tokens"}

Defaults = dict[str, float]


def parsed(name: str, value: Any) -> float:
    """One of NAMES as a number, also from text. Raises ValueError with what it must be."""
    least, most = _RANGES[name]
    kind = "a whole number" if name in _WHOLE else "a number"
    rule = f"it must be {kind} from {least:g} to {most:g}"
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(rule)
    try:
        number = float(value)
    except (ValueError, OverflowError):
        raise ValueError(rule) from None
    if name == "top_k" and number == -1:
        number = 0.0  # vLLM's word for it
    if not least <= number <= most or (name in _WHOLE and not number.is_integer()):
        raise ValueError(rule)
    return int(number) if name in _WHOLE else number


def defaults_in_file(values: Mapping[str, Any]) -> Defaults:
    """What a generation_config.json says. `do_sample` says nothing, as with vLLM: it is how the
    checkpoint's author called `generate`. Raises ValueError naming the field."""
    found = {}
    for name in NAMES:
        written = _IN_FILE.get(name, name)
        value = values.get(written)
        if value is None:
            continue
        try:
            found[name] = parsed(name, value)
        except ValueError as error:
            raise ValueError(f"{FILE}: '{written}' is {value!r:.80}; {error}") from None
    return found


def effective(values: Mapping[str, Any], parameters: Mapping[str, str]) -> Defaults:
    """What holds for a model: of its generation_config.json and its config's parameters. Raises
    ValueError naming the field."""
    own = {name: parsed(name, text) for name, text in parameters.items() if name in _RANGES}
    ignored = parameters.get(SWITCH) == "ignore"
    kept = (
        {} if ignored else {name: one for name, one in values.items() if not _is_written(name, own)}
    )
    return {**defaults_in_file(kept), **own}


def _is_written(written: str, own: Defaults) -> bool:
    """The parameters say it already: what the file has need not even be right."""
    return any(_IN_FILE.get(name, name) == written for name in own)
