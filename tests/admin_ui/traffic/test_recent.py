"""How a model did in the last minutes, from the one point of its series."""

from admin_ui.traffic.recent import RecentTraffic, recent_of


def series(name: str, **columns: object) -> dict[str, object]:
    usual = {"requests_per_s": [8.0], "error_rate": [0.0], "latency_ms_p99": [9.0]}
    return {"name": name, **usual, **columns}


def test_figures_are_those_of_the_point() -> None:
    found = recent_of([series("digits"), series("scores", error_rate=[0.5])])
    assert found["digits"] == RecentTraffic(8.0, 0.0, 9.0)
    assert found["scores"].error_percent == 50.0


def test_an_idle_model_has_no_figures_and_one_that_only_fails_no_p99() -> None:
    idle = series("echo", requests_per_s=[0.0], error_rate=[None], latency_ms_p99=[None])
    failing = series("scores", latency_ms_p99=[None], error_rate=[1.0])
    assert recent_of([idle, failing]) == {"scores": RecentTraffic(8.0, 100.0, None)}
