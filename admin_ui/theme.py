"""The look that somebody chose, from the request's cookie. Pure."""

from starlette.requests import Request

COOKIE = "modelyard_theme"
THEMES = ("light", "dark")


def theme_of(request: Request) -> str:
    """One of THEMES; "" for what the system says."""
    chosen = request.cookies.get(COOKIE, "")
    return chosen if chosen in THEMES else ""
