"""A row of the table of paths whose errors are OpenAI's, and whose requests have an id."""

from starlette.requests import Request
from starlette.responses import Response

from server.errors import RateLimited, Unauthenticated
from server.openai.caller import REQUEST_ID, request_id_of
from server.rest.endpoint import Endpoint, Row
from server.rest.openai_errors import refusal


def openai_row(path: str, endpoint: Endpoint, verb: str) -> Row:
    """`endpoint` at `path`; what it raises is answered as `server.rest.openai_errors` says."""

    async def answered(request: Request) -> Response:
        request_id = request_id_of(request)
        try:
            response = await endpoint(request)
        except Exception as error:  # noqa: BLE001 - the porch: refusal() logs what is our fault
            refused = refusal(error, f"request '{request_id}' to {request.url.path}")
            response = Response(refused.body, refused.status, media_type="application/json")
            for name, value in refused.headers:
                response.headers[name.decode()] = value.decode()
            if isinstance(error, Unauthenticated | RateLimited) and has_body(request):
                response.headers["connection"] = "close"  # it is on its way, and is not read
        response.headers[REQUEST_ID] = request_id
        return response

    return Row(path, answered, verb)


def has_body(request: Request) -> bool:
    return request.headers.get("content-length", "0") != "0" or (
        "transfer-encoding" in request.headers
    )
