"""The last lines of the log of this server: of its gateway and of its control process."""

from datetime import UTC, datetime

import msgspec

from control.access.scopes import Action
from control.api.call import Access, AuthorizedCall, EndpointResult, Operation, Param
from control.clock import Moment
from control.gateways.link import GatewayUnreachable
from control.gateways.queries import LogLine, LogLines, LogQuery
from control.http_errors import MalformedRequest

USUAL, MOST = 200, 2000


class LogLineView(msgspec.Struct, frozen=True):
    """A line as the log has it. `process`: gateway or control."""

    at: Moment
    level: str
    process: str
    text: str


class LogView(msgspec.Struct, frozen=True):
    """The oldest line first. `next`: what to give as `after` for the lines that follow."""

    items: list[LogLineView]
    next: str


async def show(call: AuthorizedCall) -> EndpointResult:
    """Each process numbers its own lines, so that `after` has a number for each. Without a gateway
    there are the lines of the control process, which say that it is gone."""
    gateway, control = _numbers(call.query.get("after", "0.0"))
    limit = _limit(call.query.get("limit", USUAL))
    own = call.services.own_lines(LogQuery(control, limit))
    try:
        theirs: LogLines = await call.services.ask_gateway(LogQuery(gateway, limit))
    except GatewayUnreachable:
        theirs = LogLines(())
    found = [("gateway", line) for line in theirs.items] + [("control", one) for one in own.items]
    found = sorted(found, key=lambda one: one[1].at)[-limit:]
    last = f"{_last(theirs.items, gateway)}.{_last(own.items, control)}"
    return EndpointResult(LogView([_view(name, line) for name, line in found], last))


def _numbers(after: str) -> tuple[int, int]:
    gateway, _, control = after.partition(".")
    if not (
        gateway.isascii() and gateway.isdecimal() and control.isascii() and control.isdecimal()
    ):
        raise MalformedRequest(
            "after is what `next` of the last answer said, such as 12.7", "after"
        )
    return min(int(gateway[:18]), 1 << 60), min(int(control[:18]), 1 << 60)


def _limit(number: int) -> int:
    if not 1 <= number <= MOST:
        raise MalformedRequest(f"limit is a whole number from 1 to {MOST}, not {number}", "limit")
    return number


def _last(lines: tuple[LogLine, ...], before: int) -> int:
    return lines[-1].number if lines else before


def _view(process: str, line: LogLine) -> LogLineView:
    return LogLineView(datetime.fromtimestamp(line.at, UTC), line.level, process, line.text)


OPERATIONS = (
    Operation(
        verb="GET",
        path="/log",
        access=Access(Action.ADMIN),
        tag="Server",
        summary="The last lines of this server's log, the oldest first",
        act=show,
        gives=LogView,
        query=(
            Param("after", "Only lines after these: `next` of the last answer."),
            Param("limit", f"At most so many, the newest; {USUAL} if not given.", int),
        ),
    ),
)
