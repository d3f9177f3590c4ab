"""What a codec makes of an infer body: the request's part of it, and the form of its answer."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from backends.seam import Tensors
from schedulers.request import NO_PARAMETERS
from server.codec.classification import NO_TOPS, Tops
from server.shared_memory.regions import NO_PLACES, Places


class OutputFormat(NamedTuple):
    """`binary`: names of outputs wanted as bytes over REST, or True for all. `tops`: outputs wanted
    as their best classes. `places`: outputs that go into shared memory instead of the answer.
    """

    binary: frozenset[str] | bool = False
    tops: Tops = NO_TOPS
    places: Places = NO_PLACES


PLAIN = OutputFormat()


class InferBody(NamedTuple):
    """What a body says, held against the signature of the version that will answer: fields as of
    `schedulers.request.InferRequest`, but for `parameters`, which hold Triton's own as well."""

    id: str
    inputs: Tensors
    rows: int
    shape_key: object
    requested_outputs: tuple[str, ...] = ()
    parameters: Mapping[str, Any] = NO_PARAMETERS
    form: OutputFormat = PLAIN
