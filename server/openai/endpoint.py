"""A row of the table of paths whose errors are OpenAI's, and whose requests have an id."""

from starlette.requests import Request
from starlette.responses import Response

from server.rest.endpoint import Endpoint, Row
from server.rest.openai_errors import refusal
from server.rest.request_ids import REQUEST_ID, request_id_of


def openai_row(path: str, endpoint: Endpoint, verb: str) -> Row:
    """`endpoint` at `path`; what it raises is answered as `server.rest.openai_errors` says."""

    async def answered(request: Request) -> Response:
        request_id = request_id_of(request.scope)
        try:
            response = await endpoint(request)
        except Exception as error:  # noqa: BLE001 - the porch: refusal() logs what is our fault
            refused = refusal(error, f"request '{request_id}' to {request.url.path}")
            response = Response(refused.body, refused.status, media_type="application/json")
            for name, value in refused.headers:
                response.headers[name.decode()] = value.decode()
        response.headers[REQUEST_ID] = request_id
        return response

    return Row(path, answered, verb)
