"""A picture or a text as the whole body, for models whose config says which input it is. Pure.

`server.rest.infer` comes here for models with `request_body.image` or `request_body.text`, whose
requests say by their Content-Type that they are such.
"""

from collections.abc import Iterable

from server.admit import admit, bytes_array
from server.codec.output_format import InferBody
from server.errors import InvalidRequest
from server.signature import Signature

Headers = Iterable[tuple[bytes, bytes]]
"""Names in lower case, values."""

_CONTENT_TYPE = b"content-type"
_UTF_8 = ("utf-8", "utf8", "us-ascii")


def body_kind(headers: Headers) -> tuple[str, str]:
    """What the body is by its Content-Type: "image", "text", or "" for anything else; and in which
    charset, "" where it says none."""
    written = next((value for name, value in headers if name == _CONTENT_TYPE), b"")
    media_type, _, rest = written.decode("latin-1").lower().partition(";")
    charset = rest.partition("charset=")[2].partition(";")[0].strip(' "')
    if media_type.strip().startswith("image/"):
        return "image", charset
    return "text" if media_type.strip() == "text/plain" else "", charset


def decode_declared(headers: Headers, body: bytes, signature: Signature) -> InferBody | None:
    """The request: one row, whose input of the body's kind is the body; None for a body of none of
    the kinds that the model declares. Raises InvalidRequest, also for a text that is not said to be
    in UTF-8."""
    kind, charset = body_kind(headers)
    spec = signature.bodies.get(kind)
    if spec is None:
        return None
    if kind == "text" and charset and charset not in _UTF_8:
        raise InvalidRequest(f"the body's charset is '{charset:.40}'; a text must be in UTF-8")
    shape = (1,) * (len(spec.dims) + (signature.max_batch > 0))
    inputs = {spec.name: bytes_array([body], shape)}
    rows, key = admit(signature, inputs)
    return InferBody("", inputs, rows, key)


def refuse_picture(headers: Headers, signature: Signature) -> None:
    """Raise InvalidRequest for a picture, which is no request of a model that does not say which
    input it would be; nothing for another body."""
    if body_kind(headers)[0] == "image":
        raise InvalidRequest(
            f"model '{signature.model}' version {signature.version} takes no picture as its body: "
            "its config names no input in the parameter request_body.image; send a JSON request "
            "(Content-Type: application/json)"
        )
