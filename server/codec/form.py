"""How a client wants its answer written: carried beside the request, from decoding to encoding."""

from typing import NamedTuple

from schedulers.request import InferRequest
from server.codec.classification import NO_TOPS, Tops
from server.shared_memory.regions import NO_PLACES, Places


class Form(NamedTuple):
    """`binary`: names of outputs wanted as bytes over REST, or True for all. `tops`: outputs wanted
    as their best classes. `places`: outputs that go into shared memory instead of the answer.
    """

    binary: frozenset[str] | bool = False
    tops: Tops = NO_TOPS
    places: Places = NO_PLACES


PLAIN = Form()


class Asked(NamedTuple):
    """A decoded request, and the form of its answer."""

    request: InferRequest
    form: Form
