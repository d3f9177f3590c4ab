"""The start-up table, as text."""

from server.banner import banner
from server.served_version import ServingState, VersionRow


def test_columns_are_aligned_and_reasons_stay_on_one_line() -> None:
    rows = [
        VersionRow("digits", 1, ServingState.READY, "", "onnxruntime", "2 × cpu", 0.5),
        VersionRow("x", None, ServingState.FAILED, "two\nlines"),
    ]
    assert banner(rows, {"REST": "http://h:1", "metrics": "http://h:2"}) == (
        "model   version  backend      instances  state   seconds  reason\n"
        "digits  1        onnxruntime  2 × cpu    READY   0.50\n"
        "x       -        -            -          FAILED  -        two lines\n"
        "\n"
        "REST     http://h:1\n"
        "metrics  http://h:2\n"
    )


def test_an_empty_repository_is_said_to_be_empty() -> None:
    assert "(no models; " in banner([], {})
