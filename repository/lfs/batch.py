"""The decisions of the LFS batch API: which objects to send, to fetch, or to refuse. Pure."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

import orjson

from repository.lfs.errors import BadBatch, BatchTooLarge, WrongAlgorithm
from repository.lfs.pointer import LARGEST_SIZE_BYTES, is_oid

MEDIA_TYPE = "application/vnd.git-lfs+json"
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class LfsLimits:
    """How many objects one batch may name, and how many bytes one object may have."""

    objects: int = 1000
    object_bytes: int = 1 << 40


@dataclass(frozen=True, slots=True)
class LfsObjectRef:
    """One object as the client names it; neither field is to be believed yet."""

    oid: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class LfsBatch:
    """A request to move objects; `ref` is the branch it is for, empty when not told."""

    operation: Literal["upload", "download"]
    objects: tuple[LfsObjectRef, ...]
    ref: str = ""


@dataclass(frozen=True, slots=True)
class LfsObjectStatus:
    """What the repository has: sizes by oid, and oids it had and will not have again."""

    sizes: Mapping[str, int]
    gone: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class TransferAction:
    """A link for one transfer, the headers to send with it, and for how long it holds."""

    href: str
    header: Mapping[str, str]
    expires_in_s: int


Link = Callable[[str, int], TransferAction]
"""From an oid and its size in bytes to where to send or fetch it."""


@dataclass(frozen=True, slots=True)
class Links:
    """Builds the links of a response."""

    upload: Link
    verify: Link
    download: Link


def parse(body: bytes, limits: LfsLimits) -> LfsBatch:
    """The batch in a request's body; raises `BadBatch` or a kind of it."""
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadBatch(f"the batch request is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise BadBatch("the batch request is not a JSON object")
    operation = fields.get("operation")
    if operation not in ("upload", "download"):
        raise BadBatch(f"operation is {_shown(operation)}; 'upload' or 'download' are offered")
    _check_ways(fields)
    objects = fields.get("objects")
    if not isinstance(objects, list):
        raise BadBatch("the batch request has no list 'objects'")
    if len(objects) > limits.objects:
        limit_text = f"at most {limits.objects} are taken, git-lfs sends 100 at a time"
        raise BatchTooLarge(f"the batch request names {len(objects)} objects; {limit_text}")
    return LfsBatch(
        cast(Literal["upload", "download"], operation),
        tuple(_object_ref(item) for item in objects),
        _ref(fields.get("ref")),
    )


def respond(batch: LfsBatch, status: LfsObjectStatus, links: Links, limits: LfsLimits) -> Json:
    """The response's JSON: for each object its actions, its error, or (it is here) neither."""
    answer = _upload if batch.operation == "upload" else _download
    return {
        "transfer": "basic",
        "objects": [answer(item, status, links, limits) for item in batch.objects],
        "hash_algo": "sha256",
    }


def error_body(message: str) -> Json:
    """The JSON that git-lfs shows to the pusher when a whole request is refused."""
    return {"message": message}


def _check_ways(fields: Json) -> None:
    transfers = fields.get("transfers") or ["basic"]
    if not (isinstance(transfers, list) and "basic" in transfers):
        raise BadBatch(f"transfers are {_shown(transfers)}; 'basic' is offered")
    algorithm = fields.get("hash_algo", "sha256")
    if algorithm != "sha256":
        raise WrongAlgorithm(f"hash_algo is {_shown(algorithm)}; 'sha256' is offered")


def _object_ref(item: object) -> LfsObjectRef:
    oid = item.get("oid") if isinstance(item, dict) else None
    size = item.get("size") if isinstance(item, dict) else None
    if not isinstance(oid, str) or not isinstance(size, int) or isinstance(size, bool):
        raise BadBatch(f"object {_shown(item)} has no text 'oid' and whole number 'size'")
    return LfsObjectRef(oid[:200], size)


def _ref(field: object) -> str:
    name = field.get("name") if isinstance(field, dict) else None
    return name if isinstance(name, str) else ""


def _upload(item: LfsObjectRef, status: LfsObjectStatus, links: Links, limits: LfsLimits) -> Json:
    problem = _problem(item, status)
    if problem is not None:
        return problem
    if item.oid in status.sizes:
        return _answer(item)
    if item.size_bytes > limits.object_bytes:
        problem_text = f"{item.size_bytes} bytes are too many; at most {limits.object_bytes} fit"
        return _refusal(item, 422, problem_text)
    return _actions(
        item,
        upload=links.upload(item.oid, item.size_bytes),
        verify=links.verify(item.oid, item.size_bytes),
    )


def _download(item: LfsObjectRef, status: LfsObjectStatus, links: Links, limits: LfsLimits) -> Json:
    problem = _problem(item, status)
    if problem is not None:
        return problem
    if item.oid in status.gone:
        return _refusal(item, 410, "this object was removed from the repository")
    if item.oid not in status.sizes:
        return _refusal(item, 404, "the repository has no such object; push it with git-lfs")
    return _actions(item, download=links.download(item.oid, item.size_bytes))


def _problem(item: LfsObjectRef, status: LfsObjectStatus) -> Json | None:
    if not is_oid(item.oid):
        return _refusal(item, 422, "this oid is no sha256; expected 64 lower-case hex digits")
    if not 0 <= item.size_bytes <= LARGEST_SIZE_BYTES:
        return _refusal(item, 422, f"{item.size_bytes} is no size; expected a number of bytes")
    size_bytes = status.sizes.get(item.oid, item.size_bytes)
    if size_bytes != item.size_bytes:
        message = (
            f"this object has {size_bytes} bytes, not {item.size_bytes}; is the pointer broken?"
        )
        return _refusal(item, 409, message)
    return None


def _actions(item: LfsObjectRef, **actions: TransferAction) -> Json:
    shown = {
        name: {
            "href": action.href,
            "header": dict(action.header),
            "expires_in": action.expires_in_s,
        }
        for name, action in actions.items()
    }
    return {**_answer(item), "actions": shown}


def _answer(item: LfsObjectRef) -> Json:
    return {"oid": item.oid, "size": item.size_bytes, "authenticated": True}


def _refusal(item: LfsObjectRef, code: int, message: str) -> Json:
    error = {"code": code, "message": message}
    return {"oid": item.oid, "size": item.size_bytes, "error": error}


def _shown(value: object) -> str:
    return repr(value)[:120]
