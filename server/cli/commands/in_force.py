"""A change of an alias or a route that is accepted, but not in force yet: said when it is made."""

from collections.abc import Iterable, Sequence

from control.views import AliasView, ArmOfRoute, LoadView, ServerView
from server.cli.commands.client import ApiClient, RequestRejected, ServerUnreachable, path_of

Target = tuple[str, int]
"""A model and the version that is to answer."""


def unready(api: ApiClient, targets: Iterable[Target], kind: str) -> str:
    """Why the change is not in force on every server: the end of a sentence, "" where it is.

    `kind`: "alias" or "route", whose list says later what is pending. Nothing is said to who may
    not ask for the states: the change is made all the same.
    """
    try:
        alive = {one.id for one in api.items("/servers", ServerView) if one.alive}
        found = [text for one in dict.fromkeys(targets) if (text := _unready(api, one, alive))]
    except (RequestRejected, ServerUnreachable):
        return ""
    if not found:
        return ""
    return (
        f"; what answered before keeps answering until that is ready: {'; '.join(found)}; "
        f"`modelyard {kind} list` says what is pending"
    )


def targets_of(api: ApiClient, arms: Sequence[ArmOfRoute]) -> list[Target]:
    """What the arms of a route lead to, their aliases followed."""
    return [(one.model, one.version or _aliased(api, one)) for one in arms]


def _aliased(api: ApiClient, arm: ArmOfRoute) -> int:
    rows = api.items(path_of("models", arm.model, "aliases"), AliasView)
    return next((one.version for one in rows if one.name == arm.alias), 0)


def _unready(api: ApiClient, target: Target, alive: set[str]) -> str:
    """Where a version is not ready; "" where every server that has it is."""
    model, version = target
    rows = [one for one in api.items("/loads", LoadView, model=model) if one.server in alive]
    states = {one.server: one for one in rows if one.version == version}
    places = [_place(one) for one in states.values() if one.state != "READY"]
    if states and not places:
        return ""
    return f"{model} version {version} is {', '.join(places) or 'not loaded'}"


def _place(load: LoadView) -> str:
    reason = f" ({load.reason})" if load.reason else ""
    return f"{load.state} on server {load.server[:8]}{reason}"
