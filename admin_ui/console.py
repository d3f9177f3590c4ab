"""The console: its screens and acts as two tables, and one ASGI route for each row.

**How a screen is made.** A `Screen` (`admin_ui.screens`) is a row: a path, a template, and
`load(context) -> Shown`, which asks the control API for what is shown and nothing else. Put the
function into a module of `admin_ui/pages/` with its rows in `SCREENS` and `ACTS`, the module into
`PAGES` below, the template beside the others.

- `context.get("/models/{model}", model=name)` and `context.change("PUT", path, body, ...)` are
  calls of the control API made as whoever looks, inside this process: the API checks permissions,
  bodies and revisions, and a refusal comes back as `ControlApiError` with the field it is about. A
  page never reads the database and never decides who may. `context.may(Action.OPERATE)` only says
  whether a form is worth drawing.
- `ScreenContent(twin, **names)`: `twin` is the JSON twin, the API's own document; the template sees
  `twin`, every name given with it, and `context`. The router answers `PATH.json`, or
  Accept: application/json, with the twin. (A name that itself ends in ".json" is linked with
  `%2Ejson`; `link(...)` in templates does so.)
- The template extends `frame.html` and fills three blocks: `top` (under the title, still),
  `live`, `forms` (still: what is being typed is never replaced). Macros are at hand as `parts.*`
  (`templates/parts.html`): `state`, `moment`, `bytes`, `count`, `table`, `form`, `field`,
  `choose`, `confirm`, `empty`, `code`.
- Live: `live=("load.*", "push.*")` names kinds of events, `about` whose they must be. A tab holds
  one stream (`/live`); when such an event comes `admin_ui.watches` calls `load` again, once for
  all tabs that see the same, and sends the block `live`, which the browser morphs in. Once a
  second at most, and never more than 2 % of a core. `live_every_s` renders without events as well
  (for charts). A screen whose block `live` has a form, or depends on who looks and not only on
  what they may do, says `personal=True`; what others share is rendered without anybody's token.
- A form is a row too: a `FormAction` has a path, the screen to show again when it is refused (with
  what was typed and the message beside the field), and `run(context)`, which returns where to go
  next (by 303) or a `ScreenContent` to show at once (a secret seen once).
  `{% call parts.form(context, act, ...) %}` makes the form and adds the token; `act` is the path it
  goes to, filled in. `typed_name="model"` makes an act wait for that path parameter's value to be
  typed into the field `confirm` (`parts.confirm`). `context.form` is what was typed; raise
  `ControlApiError(422, "invalid", "...", "field")` for what only the page can know.
- In the block `live` only `parts` and these names are at hand: what a template sets outside of its
  blocks is not there when the block is rendered alone.
- Lists that may be long take the API's cursor (`tables.cursor_page`); short ones are sorted,
  filtered and paged by `tables.Table`, from the query `q`, `sort`, `page`, always on the server.

What the router does for every row: Host and Origin are checked, nobody unknown gets further than
/login, a changing request must carry the session's form token, errors become a page (or JSON), and
each response has the CSP and its company (`admin_ui.headers`).
"""

from collections.abc import Sequence
from types import ModuleType

from starlette.routing import BaseRoute, Mount

from admin_ui.assets import Assets
from admin_ui.chart_download import chart_route
from admin_ui.live import live_route
from admin_ui.login_pages import login_routes
from admin_ui.pages import (
    access,
    appearance,
    audit,
    chat,
    compare,
    drift,
    experiments,
    help,
    jobs,
    model,
    models,
    notifications,
    overview,
    picture_answers,
    playground,
    problem,
    pushes,
    repositories,
    requests,
    rollouts,
    routes,
    search,
    servers,
    settings,
    version,
)
from admin_ui.report_download import report_route
from admin_ui.request_router import RequestRouter
from admin_ui.screens import FormAction, Screen
from admin_ui.services import ConsoleServices
from admin_ui.templates import STATIC

PAGES: Sequence[ModuleType] = (
    overview,
    problem,
    models,
    model,
    version,
    drift,
    playground,
    chat,
    picture_answers,
    compare,
    routes,
    rollouts,
    experiments,
    pushes,
    repositories,
    jobs,
    servers,
    requests,
    notifications,
    access,
    audit,
    settings,
    help,
    search,
    appearance,
)
"""In the order of the navigation."""

SCREENS: tuple[Screen, ...] = tuple(screen for page in PAGES for screen in page.SCREENS)
ACTS: tuple[FormAction, ...] = tuple(act for page in PAGES for act in page.ACTS)


def console_routes(services: ConsoleServices) -> list[BaseRoute]:
    """Every page of the console, from `/` on; what stands before them in the application wins."""
    router = RequestRouter(services, SCREENS, ACTS)
    return [
        *login_routes(router),
        live_route(router),
        chart_route(router),
        report_route(router),
        Mount("/static", Assets(directory=STATIC)),
        *router.routes(),
    ]
