"""Installs the hooks that all repositories share, and reads what they send."""

import json
import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from repository.git.errors import BadBody
from repository.git.names import is_oid
from repository.git.rules import RefUpdate

HOOKS = ("pre-receive", "post-receive")
SOCKET_VARIABLE = "MODELYARD_HOOK_SOCKET"
KEY_VARIABLE = "MODELYARD_PUSH_KEY"

_CLIENT = "hook.py"
_SOURCE = Path(__file__).with_name("hook_client.py")


@dataclass(frozen=True, slots=True)
class HookRequest:
    """One hook of one push, as git told it.

    `key` is what the server gave the push's environment. `quarantine` holds the variables that
    `quarantine_of` reads. `options` are the pusher's own words (`git push -o`).
    """

    hook: Literal["pre-receive", "post-receive"]
    key: str
    updates: tuple[RefUpdate, ...]
    quarantine: Mapping[str, str]
    options: tuple[str, ...]


def install(folder: Path) -> None:
    """Write the hooks into `folder`, read-only; the same again changes nothing."""
    contents = {_CLIENT: _SOURCE.read_bytes(), **{hook: _script(folder, hook) for hook in HOOKS}}
    if all(_holds(folder / name, content) for name, content in contents.items()):
        return
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    for name, content in contents.items():
        _write(folder / name, content, 0o400 if name == _CLIENT else 0o500)
    folder.chmod(0o500)


def decode(line: bytes) -> HookRequest:
    """What a hook sent; raises `BadBody` when it is nothing that ours sends."""
    try:
        sent = json.loads(line)
        if sent["hook"] not in HOOKS:
            raise ValueError(f"unknown hook {sent['hook']!r}")
        return HookRequest(
            hook=sent["hook"],
            key=str(sent["key"]),
            updates=tuple(_update(*update) for update in sent["updates"]),
            quarantine=MappingProxyType(_texts(sent["quarantine"])),
            options=tuple(str(option) for option in sent["options"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadBody(f"not a hook's request: {error}") from error


def _update(old: str, new: str, ref: str) -> RefUpdate:
    if not (is_oid(old) and is_oid(new)):
        raise ValueError("an update without object ids")
    return RefUpdate(old, new, str(ref))


def _texts(sent: dict[str, Any]) -> dict[str, str]:
    return {str(name): str(value) for name, value in sent.items()}


def _script(folder: Path, hook: str) -> bytes:
    client = os.path.abspath(folder / _CLIENT)
    command = shlex.join([os.path.abspath(sys.executable), "-I", "-S", client, hook])
    return f"#!/bin/sh\nexec {command}\n".encode()


def _holds(path: Path, content: bytes) -> bool:
    return path.is_file() and path.read_bytes() == content


def _write(path: Path, content: bytes, mode: int) -> None:
    unfinished = path.with_name(f".{path.name}.new")
    unfinished.unlink(missing_ok=True)
    unfinished.write_bytes(content)
    unfinished.chmod(mode)
    os.replace(unfinished, path)
