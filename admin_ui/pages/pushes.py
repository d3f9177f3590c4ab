"""Pushes and deployments: what became of each, in the words the pusher saw."""

from admin_ui.page_context import PageContext
from admin_ui.screens import FormAction, Screen, ScreenContent
from admin_ui.tables import cursor_page

STATES = (
    "received", "accepted", "deployed", "served", "failed", "refused", "abandoned", "stored",
    "superseded",
)  # fmt: skip


async def load_all(context: PageContext) -> ScreenContent:
    page, document = await cursor_page(context, "/pushes", ("repository", "state"))
    repositories = await context.every("/repositories")
    server = await context.get("/server")
    return ScreenContent(
        document,
        page=page,
        states=STATES,
        repositories=[one["name"] for one in repositories],
        git_url=server["git_url"],
        repository=context.query.get("repository", ""),
        state=context.query.get("state", ""),
    )


async def load(context: PageContext) -> ScreenContent:
    push = await context.get("/pushes/{push}", push=context.path["push"])
    subject = f"push:{push['id']}"
    events = await context.get("/events", {"newest": "true", "limit": "50", "subject": subject})
    title = {"deploy": "Deployment"}.get(push["kind"], "Push")
    title = f"{title} to {push['repository']}"
    return ScreenContent(push, title=title, push=push, events=events["items"])


SCREENS = (
    Screen(
        path="/pushes",
        title="Pushes",
        menu="Pushes",
        docs="git",
        template="pushes.html",
        load=load_all,
        live=("push.*",),
    ),
    Screen(
        path="/pushes/{push}",
        title="Push",
        template="push.html",
        load=load,
        under="/pushes",
        live=("push.*",),
    ),
)
ACTS: tuple[FormAction, ...] = ()
