"""The form in which desired state travels and is kept."""

import msgpack
import pytest

from control.desired import FORMAT, DesiredModel, DesiredState, Pin
from control.gateways.wire import decode_state, encode_state

STATE = DesiredState(
    3, "s", (DesiredModel("m", "d", pins=(Pin(1, "", "alias a"),)),), {"m": {"a": 1}}
)


def test_what_was_kept_before_there_were_structs_is_read() -> None:
    """As the first builds wrote it, with a field that nobody knows any more."""
    model = {
        "name": "m",
        "snapshot": "d",
        "pins": [{"version": 1, "snapshot": "", "by": "alias a"}],
    }
    kept = {"format": 1, "revision": 3, "store": "s", "models": [model], "grants": []}
    packed = msgpack.packb({**kept, "aliases": {"m": {"a": 1}}, "forgotten": True})
    assert decode_state(packed) == STATE == decode_state(encode_state(STATE))


@pytest.mark.parametrize(
    ("packed", "said"),
    [
        (b"", "not a desired state"),
        (b"\x80", "not a desired state: .* `format`"),
        (msgpack.packb({"format": 1, "models": []}), "not a desired state: .* `grants`"),
        (
            msgpack.packb({"format": 1, "models": [{}], "grants": []}),
            "not a desired state: .* `name`",
        ),
        (msgpack.packb({"format": 9, "models": [], "grants": []}), "format 9, this build reads 1"),
    ],
)
def test_what_is_no_desired_state_is_refused(packed: bytes, said: str) -> None:
    assert FORMAT == 1
    with pytest.raises(ValueError, match=said):
        decode_state(packed)
