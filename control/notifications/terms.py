"""What a webhook and a mute are told to do, read and checked. Pure."""

import re
from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase

from control.errors import Invalid
from control.notifications.kinds import NotificationKind
from control.notifications.payload import BodyFormat

MOST_MODELS = 100
LONGEST_WINDOW_S = 7 * 86_400
USUAL_WINDOW_S = 600

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_GLOB = re.compile(r"[^\s,?\[\]]{1,255}")  # `*` is the only wildcard


def check_name(name: str) -> None:
    """Raises Invalid."""
    if not _NAME.fullmatch(name):
        raise Invalid(
            f"'{name:.80}' cannot name a webhook: use 1 to 63 of a-z, 0-9, '.', '_' and '-', with "
            "a letter or digit first",
            "name",
        )


def read_format(text: str) -> BodyFormat:
    """Raises Invalid."""
    if text not in tuple(BodyFormat):
        raise Invalid(f"format is '{text:.80}'; give {' or '.join(BodyFormat)}", "format")
    return BodyFormat(text)


def read_kinds(texts: Iterable[str]) -> list[str]:
    """Each once, in their usual order; empty for all. Raises Invalid."""
    given = set(texts)
    for text in given:
        if text not in tuple(NotificationKind):
            known = ", ".join(NotificationKind)
            raise Invalid(f"'{text:.80}' is no kind of notification; there are {known}", "kinds")
    return [str(kind) for kind in NotificationKind if kind in given]


def read_models(texts: Iterable[str], field: str = "models") -> list[str]:
    """Names that may hold *, each once; "*" for none given. Raises Invalid."""
    models = list(dict.fromkeys(texts)) or ["*"]
    if len(models) > MOST_MODELS:
        raise Invalid(f"{len(models)} models are named; at most {MOST_MODELS}, or use *", field)
    for one in models:
        if not _GLOB.fullmatch(one) or not one.isprintable():
            raise Invalid(
                f"'{one:.80}' cannot name models: give a name, in which * stands for anything",
                field,
            )
    return models


def check_window(window_s: int) -> None:
    """Raises Invalid."""
    if not 0 <= window_s <= LONGEST_WINDOW_S:
        raise Invalid(f"window_s is {window_s}; give 0 to {LONGEST_WINDOW_S} seconds", "window_s")


def covers(
    patterns: Iterable[str], kinds: Collection[str], kind: str, models: Collection[str]
) -> bool:
    """Whether a webhook or a mute with these `patterns` of models and these `kinds` is about a
    notice of `kind` and `models`. One of which no model is known is for who takes all models."""
    if kinds and kind not in kinds:
        return False
    names = models or ("",)
    return any(fnmatchcase(name, pattern) for pattern in patterns for name in names)
