"""From a public name, as a client wrote it, to the loaded version that answers."""

from server.errors import InvalidRequest, NotReady, UnknownModel
from server.routing.routing import Routing
from server.routing.table import Route, Target
from server.served import Models, Served, not_ready_text

_VERSION_DIGITS = 18
"""A version is an int64, and Python turns no more than 4,300 digits into an int."""

_SHOWN_CHARACTERS = 64


class Lookup:
    """Names are models', routes' and MODEL@ALIAS. On the event loop's thread."""

    def __init__(self, models: Models, routing: Routing) -> None:
        self._models = models
        self._routing = routing

    def route(self, name: str, version: str) -> Route | None:
        """How a public name's requests are split; None for a name that is no route's, and where
        an explicit version bypasses it."""
        return None if version else self._routing.table.get(name)

    def model(self, name: str, version: str) -> Served:
        """The version of a model, or of MODEL@ALIAS; the highest ready one for "".

        Raises InvalidRequest, UnknownModel, NotReady.
        """
        number = parse_version(version) if version else None
        if "@" in name:
            name, number = self.unaliased(name, number)
        return self._models.get(name, number)

    def target(self, target: Target) -> Served:
        """The version that an arm of a route leads to. Raises UnknownModel, NotReady."""
        if not target.version:
            raise UnknownModel(
                f"Request for unknown model: the arm '{target.arm}' of the route '{target.route}' "
                f"leads to an alias of '{target.model}' that does not exist"
            )
        return self._models.get(target.model, target.version)

    def unaliased(self, name: str, version: int | None) -> tuple[str, int | None]:
        """What MODEL@ALIAS stands for; the name itself where it is a model's own.

        Raises UnknownModel, InvalidRequest for a version the alias does not stand for.
        """
        model, _, alias = name.rpartition("@")
        known = self._routing.aliases.get(model, {})
        number = known.get(alias)
        if number is None:
            if not known and any(row.name == name for row in self._models.rows()):
                return name, version
            has = ", ".join(sorted(known)) or "none"
            raise UnknownModel(
                f"Request for unknown model: '{model}' has no alias '{alias}'; it has {has}"
            )
        if version not in (None, number):
            raise InvalidRequest(
                f"'{name}' stands for version {number}, and version {version} was asked for; "
                "name the alias or the version"
            )
        return model, number


def require_ready(served: Served, name: str) -> Served:
    """It, if it takes requests now. Raises NotReady."""
    if not served.ready:
        number = served.version.number
        awaited = f"version {number} has {served.not_ready_reason}"
        raise NotReady(not_ready_text(name, number), awaited)
    return served


def parse_version(text: str) -> int:
    """A version number as a client writes it. Raises InvalidRequest in Triton's words."""
    if text.isascii() and text.isdigit() and len(text) <= _VERSION_DIGITS and int(text) > 0:
        return int(text)
    shown = text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
    raise InvalidRequest(
        f"failed to get model version from specified version string '{shown}' "
        "(details: stol), version should be an integral value > 0"
    )
