"""Where packages of environments come from, and how pip is told. Pure."""

from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit

TEMPORARY = "tmp"
"""In an environment's folder while it is made."""

_PASSED_ON = ("PATH", "LANG", "LC_ALL", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE")
_USERS_CONFIGURATION = (".config/pip", ".pip")


class PackageSources(NamedTuple):
    """As the operator says. `builds`: whether environments are made from requirements at all.
    `home`: the operator's, for pip's own configuration where no source is named."""

    indexes: tuple[str, ...] = ()
    wheel_dir: Path | None = None
    builds: bool = True
    home: Path = Path("/")

    @property
    def are_named(self) -> bool:
        """Whether the operator named any; otherwise pip's own configuration holds."""
        return bool(self.indexes) or self.wheel_dir is not None

    @property
    def uses_network(self) -> bool:
        return bool(self.indexes) or not self.are_named

    @property
    def key(self) -> tuple[str, ...]:
        """What tells environments of other sources apart: no names and passwords, which change."""
        folder = () if self.wheel_dir is None else (self.wheel_dir.absolute().as_uri(),)
        return (*map(without_user, self.indexes), *folder) if self.are_named else ("pip",)

    @property
    def readable(self) -> tuple[str, ...]:
        """Paths that pip needs."""
        if self.wheel_dir is not None:
            return (str(self.wheel_dir.absolute()),)
        if self.are_named:
            return ()
        return tuple(str(self.home / one) for one in _USERS_CONFIGURATION)

    def environment(self, inherited: Mapping[str, str], place: Path) -> dict[str, str]:
        """Of the process that installs: in variables, for its command line can be seen by all.
        `place`: the environment's folder, which it writes to."""
        own = {
            name: text
            for name, text in inherited.items()
            if name in _PASSED_ON or name.upper().endswith("_PROXY")
        }
        own |= dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(place / TEMPORARY))
        if not self.are_named:
            own |= {name: text for name, text in inherited.items() if name.startswith("PIP_")}
            return own | {"HOME": str(self.home)}
        own |= {"HOME": str(place / TEMPORARY), "PIP_CONFIG_FILE": "/dev/null"}
        if self.indexes:
            own["PIP_INDEX_URL"] = self.indexes[0]
            own["PIP_EXTRA_INDEX_URL"] = " ".join(self.indexes[1:])
        else:
            own["PIP_NO_INDEX"] = "1"
        if self.wheel_dir is not None:
            own["PIP_FIND_LINKS"] = self.wheel_dir.absolute().as_uri()
        return {name: text for name, text in own.items() if text}


def without_user(url: str) -> str:
    """An index' address without the name and password in it."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, to which nothing has to be encrypted; pip says so as well."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
