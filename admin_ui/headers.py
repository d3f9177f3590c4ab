"""The headers every response of the console has, and the token its forms carry. Pure."""

from hashlib import sha256
from hmac import compare_digest

CSP = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)

GUARDS = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    # Not no-referrer: browsers say `Origin: null` with every form then.
    "Referrer-Policy": "same-origin",
}

PRIVATE = {**GUARDS, "Cache-Control": "no-store"}
"""Of all but the static files."""


def form_token(cookie: str) -> str:
    """What forms of this session carry: nobody can tell it who has not read a page of ours."""
    return sha256(b"modelyard form\0" + cookie.encode()).hexdigest() if cookie else ""


def is_form_token(given: str, cookie: str) -> bool:
    return bool(cookie) and compare_digest(given.encode(), form_token(cookie).encode())
