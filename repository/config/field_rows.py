"""One row of the table of config fields, and how it is written. Pure.

`repository.config.field_table` is the table.
"""

from enum import StrEnum
from typing import NamedTuple


class FieldSupport(StrEnum):
    """What becomes of a field that a config gives."""

    HONOURED = "honoured"
    IGNORED = "ignored"
    REFUSED = "refused"


class ConfigField(NamedTuple):
    """One field, by its path without indexes: "input.reshape.shape".

    `text`: what it does; of one that is not honoured, why not, to follow its name. `default`: as it
    would be written, "" for none. `backends`: those it has an effect with, none named for all.
    `instead`: what to do about one that is not honoured. `covers`: whether it stands for what is
    below it as well, as those that are not honoured always do. `code`: of the finding.
    """

    path: str
    support: FieldSupport
    text: str
    default: str = ""
    backends: tuple[str, ...] = ()
    instead: str = ""
    covers: bool = False
    code: str = ""


REFUSED_CODE, IGNORED_CODE = "E150", "E155"


def does(
    path: str, text: str, default: str = "", backends: tuple[str, ...] = (), covers: bool = False
) -> ConfigField:
    return ConfigField(path, FieldSupport.HONOURED, text, default, backends, covers=covers)


def ignored(path: str, text: str, instead: str) -> ConfigField:
    return ConfigField(
        path, FieldSupport.IGNORED, text, instead=instead, covers=True, code=IGNORED_CODE
    )


def refused(path: str, text: str, instead: str, code: str = REFUSED_CODE) -> ConfigField:
    return ConfigField(path, FieldSupport.REFUSED, text, instead=instead, covers=True, code=code)
