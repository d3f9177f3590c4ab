"""One row of the console's tables: a screen that is looked at, an act that changes something."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from admin_ui.page_context import PageContext
from control.access.scopes import Action


class ScreenContent:
    """What a screen shows: its JSON twin, and what else its template is to see. `next_look_s`: when
    there is more to show although nothing happens; None: after the screen's `live_every_s`."""

    def __init__(
        self,
        twin: Any,
        *,
        title: str = "",
        status: int = 200,
        next_look_s: float | None = None,
        **context: Any,
    ) -> None:
        self.twin = twin
        self.title = title
        self.status = status
        self.next_look_s = next_look_s
        self.context = context


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """A page. `menu`: its name in the navigation, "" for a page below another one, which
    `under` names by its path. `docs`: the page of the docs about it, that of the page above if
    it names none. `needs`: what somebody must be allowed for the menu to offer it; the API
    decides. `live`: kinds of events ("load.*") that make its block `live` stale; `about`: of
    those only these subjects', separated by commas, from the path's parameters. `personal`: the
    block `live` depends on who looks, not only on what they may do, or has a form in it."""

    path: str
    title: str
    template: str
    load: Callable[[PageContext], Awaitable[ScreenContent]]
    menu: str = ""
    under: str = ""
    needs: Action | None = None
    live: tuple[str, ...] = ()
    live_every_s: float = 0.0
    about: Callable[[Mapping[str, str]], str] | None = None
    personal: bool = False
    docs: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormAction:
    """A form's target (POST). `screen` is the path of the screen shown again when it is refused;
    its path parameters are among the act's. `run` returns the path to go to, or what to show in
    that screen's place with `template`, or a response of its own. `file`: the body is a file, which
    `run` reads when it has made sure of who asks; the form's fields are in a header."""

    path: str
    screen: str
    run: Callable[[PageContext], Awaitable[str | ScreenContent | Response]]
    typed_name: str = ""
    template: str = ""
    file: bool = False
