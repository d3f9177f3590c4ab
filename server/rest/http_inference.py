"""An inference request that came over HTTP: what its headers say of it."""

from collections.abc import Iterable, Mapping
from typing import Any

from server.inference import Inference
from server.rest.envelope import Envelope, Headers, spelt_headers
from server.routing.experiments.route_experiments import STAMP_NAME
from server.routing.routing import labels_of, unit_header_of
from server.routing.table import HEADER_NAME, CompiledRoute, Target
from server.trace.record import HTTP, RequestReceipt


class HttpInference(Inference):
    """`began_ns`: its head was there, `arrived_ns`: its body as well."""

    __slots__ = ("began_ns", "headers")

    headers: Headers
    began_ns: int

    def arrived(self, now_ns: int, envelope: Envelope) -> None:
        """Its body is there; the client waits from now on."""
        self.arrived_ns = now_ns
        if envelope.timeout_ns:
            self.deadline_ns = now_ns + envelope.timeout_ns
        if envelope.client_id:
            self.client_id = envelope.client_id

    def unit_in_header(self, route: CompiledRoute) -> str:
        return unit_header_of(route, self.headers)

    def labels(self, route: CompiledRoute) -> Mapping[str, str]:
        return labels_of(route, self.headers)

    def receipt(self) -> RequestReceipt:
        return RequestReceipt(HTTP, self.began_ns or self.arrived_ns, self.arrived_ns, self.headers)

    def text_headers(self) -> Iterable[tuple[str, str]]:
        return spelt_headers(self.headers)


def arm_headers(target: Target | None) -> dict[str, Any]:
    """What a response's head says of who answered; nothing without a route."""
    if target is None:
        return {}
    stamp = {STAMP_NAME: target.stamp} if target.stamp else {}
    return {HEADER_NAME: target.label, **stamp}
