"""Metrics of models' own: taken or refused, merged, and gone with their model."""

import asyncio
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.process.call_messages import FamilyRequest, MetricValues, SeriesValue
from backends.process.custom_metrics import (
    COUNTER,
    GAUGE,
    HISTOGRAM,
    MOST_FAMILIES,
    MOST_LABEL_BYTES,
    MOST_SERIES,
)
from server.metrics.custom import CustomMetrics

LABELS = (("kind", "a"),)


class Worker:
    """One life of an instance that answers at once when it is asked."""

    def __init__(self, metrics: CustomMetrics, spec: object, answers: bool = True) -> None:
        self.spec = spec
        self.values: dict[str, tuple[SeriesValue, ...]] = {}
        self._metrics = metrics
        self._answers = answers

    def query_metrics(self) -> None:
        if self._answers:
            self._metrics.receive(self, MetricValues(self.values))

    def opens(self, name: str, kind: str, model: str = "m", help_text: str = "what it is") -> str:
        fault = self._metrics.register(self, model, FamilyRequest(1, name, help_text, kind))
        if not fault:
            self.values.setdefault(name, ())
        return fault


def series(value: float, set_ns: int = 0, **histogram: tuple[float, ...]) -> SeriesValue:
    counts = tuple(int(one) for one in histogram.get("counts", ()))
    return SeriesValue(LABELS, value, set_ns, histogram.get("bounds", ()), counts)


def shown(metrics: CustomMetrics) -> list[str]:
    async def scrape() -> list[str]:
        await metrics.collect()
        return list(metrics.lines())

    return asyncio.run(scrape())


def test_counter_is_the_sum_over_instances() -> None:
    metrics = CustomMetrics()
    for value in (2.0, 3.0):
        worker = Worker(metrics, object())
        assert worker.opens("steps", COUNTER) == ""
        worker.values["steps"] = (series(value),)
    assert shown(metrics) == [
        "# HELP steps what it is",
        "# TYPE steps counter",
        'steps{kind="a"} 5.0',
    ]


def test_gauge_is_what_was_set_last_and_a_sum_where_it_is_only_incremented() -> None:
    metrics = CustomMetrics()
    for name, values in (("set", ((1.0, 20), (7.0, 10))), ("open", ((1.0, 0), (7.0, 0)))):
        for value, set_ns in values:
            worker = Worker(metrics, object())
            worker.opens(name, GAUGE)
            worker.values[name] = (series(value, set_ns),)
    lines = shown(metrics)
    assert 'set{kind="a"} 1.0' in lines
    assert 'open{kind="a"} 8.0' in lines


def test_histogram_is_cumulative_and_added_up() -> None:
    metrics = CustomMetrics()
    for _ in range(2):
        worker = Worker(metrics, object())
        worker.opens("size", HISTOGRAM)
        worker.values["size"] = (series(4.5, bounds=(1.0, 2.5), counts=(1, 2, 3)),)
    assert shown(metrics)[2:] == [
        'size_bucket{kind="a",le="1.0"} 2',
        'size_bucket{kind="a",le="2.5"} 6',
        'size_bucket{kind="a",le="+Inf"} 12',
        'size_sum{kind="a"} 9.0',
        'size_count{kind="a"} 12',
    ]


def test_what_a_worker_has_counted_stays_when_it_dies_and_goes_with_its_model() -> None:
    metrics, spec = CustomMetrics(), object()
    first = Worker(metrics, spec)
    first.opens("steps", COUNTER)
    first.opens("level", GAUGE)
    first.values = {"steps": (series(2.0),), "level": (series(9.0, 1),)}
    shown(metrics)
    metrics.gone(first)
    assert shown(metrics) == []  # nobody has the family until the next life opens it
    second = Worker(metrics, spec)
    second.opens("steps", COUNTER)
    second.opens("level", GAUGE)
    second.values = {"steps": (series(1.0),), "level": ()}
    lines = shown(metrics)
    assert 'steps{kind="a"} 3.0' in lines
    assert not any(line.startswith("level{") for line in lines)
    metrics.gone(second)
    metrics.forget(spec)
    assert shown(metrics) == []


def test_family_that_the_model_drops_is_gone() -> None:
    metrics = CustomMetrics()
    worker = Worker(metrics, object())
    worker.opens("steps", COUNTER)
    worker.values = {}
    assert shown(metrics) == []


def test_kind_that_another_model_uses_otherwise_is_refused_with_both() -> None:
    metrics = CustomMetrics()
    assert Worker(metrics, object()).opens("steps", COUNTER, "one") == ""
    assert Worker(metrics, object()).opens("steps", COUNTER, "two") == ""
    text = Worker(metrics, object()).opens("steps", GAUGE, "three")
    assert "counter of model 'one'" in text
    assert "model 'three' cannot have it as a gauge" in text


def test_new_version_of_a_model_may_define_a_family_otherwise() -> None:
    metrics = CustomMetrics()
    old, new = Worker(metrics, object()), Worker(metrics, object())
    old.opens("steps", COUNTER)
    assert new.opens("steps", GAUGE) == ""
    old.values["steps"], new.values["steps"] = (series(5.0),), (series(1.0, 1),)
    assert shown(metrics)[1:] == ["# TYPE steps gauge", 'steps{kind="a"} 1.0']


@pytest.mark.parametrize(
    ("name", "kind", "text"),
    [
        ("nv_inference_count", COUNTER, "are the server's"),
        ("modelyard_x", COUNTER, "are the server's"),
        ("9lives", COUNTER, "no name of a metric"),
        ("x\ny", COUNTER, "no name of a metric"),
        ("x" * 300, COUNTER, "no name of a metric"),
        ("x", "summary", "unknown kind 'summary'"),
    ],
)
def test_family_that_cannot_be_is_refused(name: str, kind: str, text: str) -> None:
    assert text in Worker(CustomMetrics(), object()).opens(name, kind)


def test_families_of_an_instance_have_a_bound() -> None:
    worker = Worker(CustomMetrics(), object())
    for number in range(MOST_FAMILIES):
        assert worker.opens(f"x{number}", COUNTER) == ""
    assert "the most there may be" in worker.opens("one_more", COUNTER)


@pytest.mark.parametrize(
    "values",
    [
        tuple(series(1.0) for _ in range(MOST_SERIES + 1)),
        (SeriesValue((("x", "y" * MOST_LABEL_BYTES),), 1.0, 0, (), ()),),
        (SeriesValue((("x} 1\nevil", "y"),), 1.0, 0, (), ()),),
        (SeriesValue((("__name__", "y"),), 1.0, 0, (), ()),),
        (SeriesValue((), 1.0, 0, (1.0, 1.0), (0, 0, 0)),),
        (SeriesValue((), 1.0, 0, (1.0,), (0, 0, 0)),),
        (SeriesValue((("le", "9"),), 1.0, 0, (1.0,), (0, 0)),),
    ],
    ids=["many", "long", "line break", "reserved", "buckets", "counts", "le"],
)
def test_worker_that_sends_what_no_worker_of_ours_sends_is_found_out(
    values: tuple[SeriesValue, ...],
) -> None:
    metrics = CustomMetrics()
    worker = Worker(metrics, object(), answers=False)
    worker.opens("x", COUNTER)
    with pytest.raises(ValueError, match=r"metric|histogram"):
        metrics.receive(worker, MetricValues({"x": values}))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (HISTOGRAM, SeriesValue((), 1.0, 0, (), (1, 2))),
        (HISTOGRAM, SeriesValue((), 1.0, 0, (), ())),
        (COUNTER, SeriesValue((), 1.0, 0, (1.0,), (1, 2))),
        (GAUGE, SeriesValue((), 1.0, 0, (), (1,))),
        (COUNTER, SeriesValue((("a", "1"), ("a", "2")), 1.0, 0, (), ())),
        (COUNTER, SeriesValue((("b", "1"), ("a", "2")), 1.0, 0, (), ())),
    ],
    ids=["no bounds", "no buckets", "counter's buckets", "gauge's counts", "twice", "order"],
)
def test_series_that_no_scrape_could_show_is_refused_when_it_comes(
    kind: str, value: SeriesValue
) -> None:
    metrics = CustomMetrics()
    worker = Worker(metrics, object(), answers=False)
    worker.opens("x", kind)
    with pytest.raises(ValueError, match=r"label|histogram"):
        metrics.receive(worker, MetricValues({"x": (value,)}))
    assert [line for line in shown(metrics) if not line.startswith("#")] == []


def test_family_of_another_kind_shows_nothing_of_the_former_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("server.metrics.custom.COLLECT_S", 0.01)
    metrics, spec = CustomMetrics(), object()
    worker = Worker(metrics, spec)
    worker.opens("x", COUNTER)
    worker.values["x"] = (series(2.0),)
    assert 'x{kind="a"} 2.0' in shown(metrics)
    worker.opens("x", HISTOGRAM)
    worker._answers = False
    assert shown(metrics) == ["# HELP x what it is", "# TYPE x histogram"]
    metrics.receive(worker, MetricValues({"x": ()}))
    metrics.gone(worker)
    assert shown(metrics) == []


def test_counts_of_a_life_whose_family_was_of_another_kind_are_not_shown() -> None:
    metrics, spec = CustomMetrics(), object()
    for kind in (COUNTER, HISTOGRAM, HISTOGRAM):
        worker = Worker(metrics, spec)
        worker.opens("x", kind)
        worker.values["x"] = (series(2.0),) if kind == COUNTER else ()
        lines = shown(metrics)
        metrics.gone(worker)
    assert lines == ["# HELP x what it is", "# TYPE x histogram"]


def test_scrape_waits_a_while_for_a_worker_and_shows_what_it_said_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("server.metrics.custom.COLLECT_S", 0.01)
    metrics = CustomMetrics()
    worker = Worker(metrics, object())
    worker.opens("steps", COUNTER)
    worker.values["steps"] = (series(2.0),)
    assert 'steps{kind="a"} 2.0' in shown(metrics)
    worker._answers = False
    worker.values["steps"] = (series(3.0),)
    assert 'steps{kind="a"} 2.0' in shown(metrics)


@given(
    values=st.lists(
        st.tuples(st.integers(0, 1000).map(float), st.integers(0, 3)), min_size=1, max_size=4
    ),
    kind=st.sampled_from([COUNTER, HISTOGRAM]),
)
def test_order_of_the_instances_does_not_matter(values: list[tuple[float, int]], kind: str) -> None:
    found = set()
    for order in permutations(values):
        metrics = CustomMetrics()
        for value, count in order:
            worker = Worker(metrics, object())
            worker.opens("x", kind)
            histogram = {"bounds": (1.0,), "counts": (count, 1)} if kind == HISTOGRAM else {}
            worker.values["x"] = (series(value, **histogram),)
        found.add(tuple(shown(metrics)))
    assert len(found) == 1
