"""An endpoint's answer on the wire: JSON, ETag, 304, the Link of the next page. Pure."""

from collections.abc import Callable, Sequence
from typing import TypeVar
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import URL
from starlette.requests import Request
from starlette.responses import Response

from control.api.call import AuthorizedCall, EndpointResult
from control.api.etags import etag_of, is_unchanged
from control.authentication.origins import SAFE
from control.paging import check_limit, cursor_of, key_of
from control.views import Page, to_json


def response(answer: EndpointResult, request: Request, request_id: str) -> Response:
    """The response; 304 without a body when a reader has it already."""
    headers = {
        "Cache-Control": "no-cache",
        "X-Content-Type-Options": "nosniff",
        "X-Request-Id": request_id,
    }
    if answer.location:
        headers["Location"] = answer.location
    if answer.status == 204:
        return Response(status_code=204, headers=headers)
    body = to_json(answer.document)
    headers["ETag"] = etag_of(body, answer.revision)
    if answer.next is not None:
        headers["Link"] = f'<{_next_page(request.url, answer.next)}>; rel="next"'
    if request.method in SAFE and is_unchanged(
        request.headers.get("if-none-match"), headers["ETag"]
    ):
        return Response(status_code=304, headers=headers)
    return Response(body, answer.status, headers, media_type="application/json")


V = TypeVar("V")


def from_page(page: Page[V]) -> EndpointResult:
    """A page that the database made."""
    return EndpointResult(page, next=page.next)


def page_of(
    call: AuthorizedCall, views: Sequence[V], key: Callable[[V], str], newest_first: bool = False
) -> EndpointResult:
    """One page of a short list, sorted by `key`, descending when `newest_first`."""
    paging = call.paging()
    limit, cursor = paging["limit"], paging["cursor"]
    check_limit(limit)
    ordered = sorted(views, key=key)
    if cursor is not None:
        after = str(key_of(cursor, [str])[0])
        ordered = [
            view for view in ordered if (key(view) < after if newest_first else key(view) > after)
        ]
    if newest_first:
        ordered.reverse()
    more = len(ordered) > limit
    return from_page(
        Page(tuple(ordered[:limit]), cursor_of((key(ordered[limit - 1]),)) if more else None)
    )


def _next_page(url: URL, cursor: str) -> str:
    pairs = parse_qsl(url.query, keep_blank_values=True)
    kept = [(name, text) for name, text in pairs if name != "cursor"]
    return f"{url.path}?{urlencode([*kept, ('cursor', cursor)])}"
