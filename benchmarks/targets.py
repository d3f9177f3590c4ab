"""What the figures are held against: ratios between rows of the same run, and a few limits."""

from collections.abc import Iterator

from benchmarks.load import Sample
from benchmarks.peers import asgi_echo, mlserver, modelyard
from benchmarks.report import Added, Check, Ratio, Report
from benchmarks.rounds import Spread
from benchmarks.scenarios import (
    cnn,
    crowds,
    ensembles,
    footprint,
    identity,
    idle,
    isolation,
    routing,
    scripts,
    sequences,
)

REST_CPU_US = 60.0
OVER_MLSERVER = 7.0
OF_GRPC_ECHO = 1.25
OF_BARE_LOOP = 0.90
JSON_EXTRA_MS = 9.0
SMALL_MODEL_MB = 4.0
ROUTE_US = 5.0
THREE_STEPS = 2.2
CALL_US = 250.0
ISOLATION_US = 60.0
OF_DYNAMIC_BATCHER = 0.9
OF_SHARE_SAVED = 0.9
NOISE = 1.2
"""How much slower still counts as no slower, on machines that are noisy by a fifth."""


def checks(report: Report) -> list[Check]:
    """Every target, met, missed or not measured in this run."""
    return [
        *_rest_identity(report),
        *_grpc_identity(report),
        *_cnn_tensors(report),
        *_cnn_json(report),
        *_crowds(report),
        *_footprint(report),
        *_routing(report),
        *_ensembles(report),
        *_scripts(report),
        *_sequences(report),
        *_isolation(report),
        *_idle(report),
    ]


def _rest_identity(report: Report) -> Iterator[Check]:
    ours, echo, theirs = (
        report.find(identity.NAME, peer, "REST JSON", 32)
        for peer in (identity.BUILT_IN, asgi_echo.NAME, mlserver.NAME)
    )
    beside = f" (bare ASGI echo: {echo.cpu_us:.0f})" if echo else ""
    cpu = ours.cpu_us if ours else None
    yield _at_most("REST identity × 32, CPU-µs per request" + beside, cpu, REST_CPU_US, ".0f")
    ratio = ours.per_second / theirs.per_second if ours and theirs else None
    yield _at_least("REST identity × 32, throughput over MLServer", ratio, OVER_MLSERVER)


def _grpc_identity(report: Report) -> Iterator[Check]:
    for concurrency in (8, 32):
        ours = report.find(identity.NAME, identity.BUILT_IN, "gRPC", concurrency)
        found = (
            report.find(identity.NAME, peer, "gRPC", concurrency) for peer in identity.GRPC_ECHOES
        )
        echoes = [echo for echo in found if echo]
        fastest = max(echoes, key=lambda echo: echo.per_second, default=None)
        name = f"gRPC identity × {concurrency}, "
        slower = fastest.per_second / ours.per_second if ours and fastest else None
        yield _at_most(name + "times slower than the faster grpcio echo", slower, OF_GRPC_ECHO)
        dearer = ours.cpu_us / fastest.cpu_us if ours and fastest else None
        yield _at_most(name + "CPU over that echo's", dearer, OF_GRPC_ECHO)


def _cnn_tensors(report: Report) -> Iterator[Check]:
    best = _best_loop(report)
    for wire in ("REST binary", "gRPC"):
        for concurrency in (8, 32):
            ours = report.find(cnn.NAME, cnn.OURS, wire, concurrency)
            share = ours.per_second / best.per_second if ours and best else None
            yield _at_least(
                f"CNN {wire} × {concurrency}, share of bare onnxruntime", share, OF_BARE_LOOP
            )


def _cnn_json(report: Report) -> Iterator[Check]:
    for concurrency in (8, 32):
        as_json, tensors = (
            report.find(cnn.NAME, cnn.OURS, wire, concurrency)
            for wire in ("REST JSON", "REST binary")
        )
        extra = (as_json.cpu_us - tensors.cpu_us) / 1e3 if as_json and tensors else None
        yield _at_most(f"CNN JSON × {concurrency}, CPU ms above tensors", extra, JSON_EXTRA_MS)


def _crowds(report: Report) -> Iterator[Check]:
    for wire in ("REST JSON", "REST binary", "gRPC"):
        for count in crowds.CONNECTIONS:
            ours = report.find(crowds.NAME, modelyard.NAME, wire, count)
            worst = ours.worst_ms / ours.p99_ms if ours else None
            name = f"{wire}, {count} connections, worst latency over the p99"
            yield _at_most(name, worst, crowds.WORST_OVER_P99)


def _footprint(report: Report) -> Iterator[Check]:
    for name, limit in footprint.LIMITS.items():
        yield _at_most(name, report.figure(name), limit, ".1f")
    alone, beside = (report.figure(name) for name in (footprint.ALONE, footprint.BESIDE))
    slower = beside / alone if alone and beside else None
    yield _at_most("digits beside 200 models, times its p50 alone", slower, NOISE)


def _routing(report: Report) -> Iterator[Check]:
    echo = report.find(routing.NAME, asgi_echo.NAME, "REST JSON", routing.CONCURRENCY)
    beside = f"; bare ASGI echo: {echo.cpu_us:.1f}" if echo else ""
    found = {(one.wire, one.peer): one for one in report.added}
    for wire in ("REST JSON", "gRPC"):
        for peer, base in routing.PAIRS:
            name = f"{wire}, CPU-µs that '{peer}' adds to '{base}'"
            yield _added(name, found.get((wire, peer)), ROUTE_US, beside)


def _ensembles(report: Report) -> Iterator[Check]:
    for wire in ("REST JSON", "gRPC"):
        for concurrency in ensembles.CONCURRENCIES:
            one = report.ratio(ensembles.NAME, wire, concurrency, ensembles.THREE)
            name = f"{wire} × {concurrency}, {ensembles.THREE}, CPU over one request's"
            yield _times(name, one, None if one is None else one.cpu, THREE_STEPS)
    concurrency = ensembles.CONDITION_CONCURRENCY
    saved = 1 / (1 - ensembles.SHARE_SAVED)
    for dear, peer in ensembles.CONDITIONAL.items():
        one = report.ratio(ensembles.NAME, "REST JSON", concurrency, peer)
        for what, spread in (("CPU", "cpu"), ("time", "wall")):
            name = f"requests per {what} over the {dear} model's, of {saved:g} times as many"
            share = None if one is None else _inverse(getattr(one, spread), saved)
            yield _share(name, one, share, OF_SHARE_SAVED)


def _scripts(report: Report) -> Iterator[Check]:
    found = {(one.peer, one.base): one for one in report.added}
    for pair in scripts.PAIRS:
        name = f"CPU-µs, in all processes, of {pair[0]} from a python model"
        yield _added(name, found.get(pair), CALL_US)


def _sequences(report: Report) -> Iterator[Check]:
    for peer in (sequences.DIRECT, sequences.OLDEST):
        one = report.ratio(sequences.NAME, "REST JSON", sequences.LIVE, peer)
        for what, spread in (("CPU", "cpu"), ("time", "wall")):
            share = None if one is None else _inverse(getattr(one, spread), 1.0)
            name = f"{peer}, {sequences.LIVE} live, requests per {what} over the dynamic batcher's"
            yield _share(name, one, share, OF_DYNAMIC_BATCHER)


def _isolation(report: Report) -> Iterator[Check]:
    found = {(one.peer, one.base): one for one in report.added}
    name = "CPU-µs, in all processes, that a process of its own adds to a batch of 64 KB"
    yield _added(name, found.get(isolation.PAIRS[0]), ISOLATION_US)


def _idle(report: Report) -> Iterator[Check]:
    limits = {
        "gateway": idle.LIMIT_PERCENT,
        "control process": idle.LIMIT_PERCENT,
        "workers": idle.WORKER_LIMIT_PERCENT,
    }
    for repository in idle.REPOSITORIES:
        for role, limit in limits.items():
            name = idle.cpu_figure(role, repository)
            yield _at_most(name + ", % of a core", report.figure(name), limit, ".3f")
        name = idle.written_figure(repository)
        yield _at_most(name + ", KB", report.figure(name), 0.0, ".0f")


def _added(name: str, one: Added | None, limit: float, beside: str = "") -> Check:
    """Met where the median of the pairs is; sure where its bounds are on the same side."""
    if one is None:
        return _at_most(name, None, limit)
    middle, lower, upper = one.us
    pairs = f"{one.pairs} pairs, 95 % sure of {lower:+.1f} to {upper:+.1f}"
    measured = f"{middle:+.2f} ({pairs}; to {one.base_us:.1f}{beside})"
    sure = upper <= limit or lower > limit
    return Check(name, measured, f"≤ {limit:g}", middle <= limit, sure)


def _times(name: str, one: Ratio | None, spread: Spread | None, limit: float) -> Check:
    if one is None or spread is None:
        return _at_most(name, None, limit)
    sure = spread.upper <= limit or spread.lower > limit
    return Check(name, _paired(one, spread), f"≤ {limit:g}", spread.middle <= limit, sure)


def _share(name: str, one: Ratio | None, spread: Spread | None, limit: float) -> Check:
    if one is None or spread is None:
        return _at_least(name, None, limit)
    sure = spread.lower >= limit or spread.upper < limit
    return Check(name, _paired(one, spread), f"≥ {limit:g}", spread.middle >= limit, sure)


def _paired(one: Ratio, spread: Spread) -> str:
    middle, lower, upper = spread
    return (
        f"{middle:.2f} ({one.pairs} pairs, 95 % sure of {lower:.2f} to {upper:.2f}; "
        f"to {one.base_us:.1f} CPU-µs)"
    )


def _inverse(spread: Spread, over: float) -> Spread:
    """Of times taken: how many requests in the same time, over `over`."""
    middle, lower, upper = (1 / each / over for each in spread)
    return Spread(middle, upper, lower)


def _best_loop(report: Report) -> Sample | None:
    loops = [row.sample for row in report.rows if row.wire == cnn.IN_PROCESS]
    return max(loops, key=lambda sample: sample.per_second, default=None)


def _at_most(name: str, value: float | None, limit: float, form: str = ".2f") -> Check:
    met = None if value is None else value <= limit
    return Check(name, "–" if value is None else format(value, form), f"≤ {limit:g}", met)


def _at_least(name: str, value: float | None, limit: float, form: str = ".2f") -> Check:
    met = None if value is None else value >= limit
    return Check(name, "–" if value is None else format(value, form), f"≥ {limit:g}", met)
