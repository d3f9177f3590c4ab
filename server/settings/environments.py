"""The settings of Python environments of models. Part of `Settings`."""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from backends.environments.sources import is_loopback, without_user
from server.settings.kinds import FILE, ValueKind, choice, setting, whole
from server.settings.rate_limit import RateLimitSettings


def _read(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or text.split() != [text]:
        raise ValueError
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise ValueError
    return text


INDEX = ValueKind(
    "URL",
    "of the form https://HOST/PATH (http of this machine alone)",
    _read,
    (str,),
    separator=" ",
    shown=without_user,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentSettings(RateLimitSettings):
    """What environments may take and bring; docs/environments.md has it all."""

    environment_builds: str = setting(
        "Models",
        choice("on", "off"),
        "on",
        "Whether a requirements.txt beside a python model is installed into an environment of its "
        "own; off: the file is not read, and the model runs on the server's own Python.",
    )
    environment_index: tuple[str, ...] = setting(
        "Models",
        INDEX,
        (),
        "A package index that environments are installed from, instead of those that pip is "
        "configured with; repeat it for several. pip takes the highest version of all of them: "
        "name none that others may write to beside one of your own.",
        note="pip's own configuration",
        repeat=True,
    )
    environment_wheel_dir: Path | None = setting(  # noqa: RUF009 (a frozen default)
        "Models",
        FILE,
        None,
        "A folder with wheels that environments are installed from; without --environment-index "
        "nothing else is asked.",
        note="none",
    )
    environment_cache_limit: int = setting(
        "Limits",
        whole(0, 2**50, "BYTES"),
        20 << 30,
        "Disk that Python environments of models may take in the state folder; what no loaded "
        "model uses is removed beyond it, the one that was used longest ago first.",
    )
