"""How a model did in the last minutes, from two points of its series."""

from admin_ui.traffic.recent import RecentTraffic, recent_of


def series(name: str, **columns: object) -> dict[str, object]:
    usual = {"requests_per_s": [4.0, 12.0], "failed_per_s": {}, "latency_ms_p99": [5.0, 9.0]}
    return {"name": name, **usual, **columns}


def test_rates_are_means_and_the_p99_is_the_slower_one() -> None:
    failing = series("scores", failed_per_s={"BACKEND": [1.0, 3.0], "TIMEOUT": [None, 4.0]})
    found = recent_of([series("digits"), failing])
    assert found["digits"] == RecentTraffic(8.0, 0.0, 9.0)
    assert found["scores"].error_percent == 50.0


def test_a_request_whose_client_had_gone_did_not_fail() -> None:
    found = recent_of([series("digits", failed_per_s={"CANCELED": [2.0, 3.0]})])
    assert found["digits"].error_percent == 0.0


def test_an_idle_model_has_no_figures_and_one_that_only_fails_no_p99() -> None:
    idle = series("echo", requests_per_s=[None, 0.0])
    failing = series("scores", latency_ms_p99=[None, None], failed_per_s={"BACKEND": [4.0, 12.0]})
    assert recent_of([idle, failing]) == {"scores": RecentTraffic(8.0, 100.0, None)}
