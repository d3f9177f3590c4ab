"""What clients tell of answers, on its way to the control process."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from control.errors import Invalid
from control.experiments.stamp import MOST_CHARACTERS, read
from control.gateways.messages import FeedbackRow, FeedbackRows
from server.errors import InvalidRequest, Unsupported

MOST_AT_ONCE = 1_000
"""Values in one request."""

MOST_WAITING, FRAME_ROWS = 20_000, 1_000
"""Values that wait for the link, and how many go in one frame."""

LONGEST_NAME, LONGEST_UNIT, LONGEST_KEY = 255, 1_024, 100
LARGEST = 1e15

_KEYS = ("metric", "value", "stamp", "unit", "experiment", "id")


class FeedbackBuffer:
    """One gateway's; on the loop's thread. Closed until there is a control process to tell;
    `stamp_key` is empty while no experiment runs."""

    def __init__(self, waiting: int = MOST_WAITING) -> None:
        self._most_waiting = waiting
        self._waiting: list[FeedbackRow] = []
        self._is_open = False
        self.stamp_key = b""

    def open(self) -> None:
        """There is a control process to tell."""
        self._is_open = True

    def use(self, stamp_key: bytes) -> None:
        """Hold stamps against this key from now on."""
        self.stamp_key = stamp_key

    def offer(self, rows: Sequence[FeedbackRow]) -> bool:
        """Take all of them; False when there is no room. Raises Unsupported where nobody asks."""
        if not self._is_open:
            raise Unsupported("feedback needs the control process, which --allow-admin switches on")
        if len(self._waiting) + len(rows) > self._most_waiting:
            return False
        self._waiting += rows
        return True

    def messages(self) -> Iterator[FeedbackRows]:
        """What waits; what was yielded is forgotten when the next one is asked for."""
        while self._waiting:
            rows = self._waiting[:FRAME_ROWS]
            yield FeedbackRows(tuple(rows))
            del self._waiting[: len(rows)]


def parse(
    document: Mapping[str, Any], name: str, stamp_key: bytes, now: float
) -> list[FeedbackRow]:
    """The values in a body: the object itself, or the list in its `values`. Raises InvalidRequest
    saying which one is wrong, why, and what would do."""
    rows = document["values"] if set(document) == {"values"} else [document]
    if not isinstance(rows, list) or not 1 <= len(rows) <= MOST_AT_ONCE:
        raise InvalidRequest(f"values must be a list of 1 to {MOST_AT_ONCE} objects")
    found = []
    for number, row in enumerate(rows, 1):
        try:
            found.append(_feedback_row(row, name, stamp_key, now))
        except (InvalidRequest, Invalid) as error:
            raise InvalidRequest(f"value {number} of {len(rows)}: {error}") from None
    return found


def _feedback_row(row: Any, name: str, stamp_key: bytes, now: float) -> FeedbackRow:
    if not isinstance(row, Mapping):
        raise InvalidRequest(f"it must be an object with {', '.join(_KEYS)}")
    if strange := [key for key in row if key not in _KEYS]:
        raise InvalidRequest(f"there is no '{strange[0]:.60}'; there are {', '.join(_KEYS)}")
    feedback_row = FeedbackRow(
        name=name,
        metric=_text(row, "metric", LONGEST_NAME),
        value=_number(row.get("value")),
        at=now,
        stamp=_text(row, "stamp", MOST_CHARACTERS),
        experiment=_text(row, "experiment", LONGEST_NAME),
        unit=_text(row, "unit", LONGEST_UNIT),
        key=_text(row, "id", LONGEST_KEY),
    )
    if not feedback_row.metric:
        raise InvalidRequest("the metric is missing")
    if bool(feedback_row.stamp) == bool(feedback_row.unit):
        raise InvalidRequest(
            "give either the stamp that the response brought (header x-modelyard-stamp) or the unit"
        )
    if feedback_row.stamp and stamp_key:
        _check_stamp(feedback_row, stamp_key, now)
    return feedback_row


def _check_stamp(row: FeedbackRow, key: bytes, now: float) -> None:
    """Raises Invalid; InvalidRequest for one of another name, which another token may be for."""
    of = read(key, row.stamp, now).route
    if row.name not in (of.route, of.model):
        raise InvalidRequest(f"the stamp is of '{of.route}', not of '{row.name:.100}'")


def _text(row: Mapping[str, Any], key: str, longest: int) -> str:
    value = row.get(key, "")
    if isinstance(value, str) and len(value) <= longest and value.isprintable():
        return value
    raise InvalidRequest(f"{key} must be a text of at most {longest} printable characters")


def _number(value: object) -> float | bool:
    if isinstance(value, bool | int | float) and abs(value) <= LARGEST:  # false for NaN
        return value
    raise InvalidRequest(f"value must be true, false, or a number up to {LARGEST:g}")
