"""Profile a version: a server of its own, loaded under each choice of settings and measured."""

import os
from pathlib import Path

from tritonclient.grpc import model_config_pb2 as pb

from control.jobs.report import Figure, Plot, PlotSeries, Report, ReportTable
from control.jobs.specs.profile import ProfileSpec
from control.jobs.traffic import SAMPLED
from jobs.tools.measure.machine import cpu_name
from jobs.tools.profile.changed_config import as_text, changed, measured
from jobs.tools.profile.clients import ClientLoad, fire, percentile
from jobs.tools.profile.replay import replay
from jobs.tools.profile.report_warnings import warnings_of
from jobs.tools.profile.requests import make_requests
from jobs.tools.profile.sampled import TrialRequests, sampled_requests
from jobs.tools.profile.search import Search
from jobs.tools.profile.served import LoadRefused, ProfiledServer
from jobs.tools.profile.space import (
    TrialMeasurement,
    TrialSettings,
    grid,
    measurements,
    pareto,
    score,
)
from jobs.tools.result.config import read_config
from jobs.tools.result.provenance import digests, spec_fields, versions
from jobs.tools.work import Work, refuse

FINALISTS = 2
"""Of the best, measured once more beside the config in force: one measurement may be lucky."""
ENOUGH = 20
"""Answers below which a 99th percentile means nothing."""


def run(work: Work) -> Report:
    """Raises WorkRefused for a model that a profile cannot load or send requests to."""
    spec = work.task.spec
    assert isinstance(spec, ProfileSpec)
    work.progress(0.0, "starting a server")
    config = measured(read_config(Path(work.task.source)))
    _refuse_unmeasured(config)
    _refuse_arrivals(spec)
    requests = _requests(work, spec, config)
    with ProfiledServer(Path(work.task.scratch), Path(work.task.source), config) as server:
        trials = _Trials(work, spec, config, server, requests)
        return trials.report()


class _Trials:
    """Loads and measures; `found` has the samples of each choice, the last the one that counts."""

    def __init__(
        self,
        work: Work,
        spec: ProfileSpec,
        config: pb.ModelConfig,
        server: ProfiledServer,
        requests: TrialRequests,
    ) -> None:
        self._work = work
        self._spec = spec
        self._config = config
        self._server = server
        self._requests = requests
        self._every = grid(
            spec,
            batches=bool(config.max_batch_size),
            threads=config.backend == "onnxruntime" or config.platform.startswith("onnx"),
            rows=requests.rows,
        )
        if not self._every:
            refuse(f"every batch size is smaller than a request of {requests.rows} rows")
        self.found: dict[TrialSettings, TrialMeasurement] = {}
        self.count = 0

    def report(self) -> Report:
        """Search, compare the best with the config in force, and say what to set."""
        before = self._measure(self._config)
        if isinstance(before, str):
            refuse(f"the model cannot be measured as it is served: {before}")
        most = measurements(self._spec, len(self._every), FINALISTS)
        cores = len(os.sched_getaffinity(0))
        search = Search(self._every, most, self._work.task.seed, cores)
        for at, settings in enumerate(search.proposals(), 1):
            search.tell(settings, self._try(settings))
            self._work.progress(0.9 * at / most, f"{at} of {most} choices measured")
        best, after = self._final(search)
        before = self._again(self._config, before)
        return self._report(best, before, after)

    def _final(self, search: Search) -> tuple[TrialSettings, TrialMeasurement]:
        """The best of the finalists by the mean of two measurements."""
        finalists = [one for one in search.best(FINALISTS) if one in self.found]
        if not finalists:
            refuse("the model could be measured under no choice of settings; the log says why")
        for one in finalists:
            self.found[one] = self._again(changed(self._config, one), self.found[one])
        best = max(finalists, key=lambda one: score(self._spec, self.found[one]))
        return best, self.found[best]

    def _try(self, settings: TrialSettings) -> float:
        sample = self._measure(changed(self._config, settings))
        if isinstance(sample, str):
            self._work.note(f"{_words(settings)}: {sample}")
            return float("-inf")
        if sample.missed:
            self._work.note(f"{_words(settings)}: {sample.missed} requests could not be sent")
        self.found[settings] = sample
        self._work.point("requests a second", self.count, sample.per_second)
        self._work.point("99th percentile, ms", self.count, sample.p99_ms)
        return score(self._spec, sample)

    def _measure(self, config: pb.ModelConfig) -> TrialMeasurement | str:
        """A sample, or why there is none."""
        self.count += 1
        try:
            self._server.load(config)
        except LoadRefused as reason:
            return str(reason)
        except OSError as error:
            refuse(f"the server does not answer any more: {error}")
        spec = self._spec
        spent = self._server.cpu_seconds()
        load = self._load()
        spent = self._server.cpu_seconds() - spent
        if load.errors:
            return f"{load.errors} of {spec.concurrency} clients got an error: {load.reason}"
        if len(load.latencies_ms) < ENOUGH:
            return (
                f"only {len(load.latencies_ms)} answers in {spec.seconds:g} s, too few for a 99th "
                "percentile; set 'seconds' higher"
            )
        times = sorted(load.latencies_ms)
        return TrialMeasurement(
            len(times) / load.seconds, percentile(times, 50), percentile(times, 99), 0,
            self._server.memory(), 1e3 * spent / load.answers, load.missed,
        )  # fmt: skip

    def _load(self) -> ClientLoad:
        spec, socket, sent = self._spec, self._server.socket, self._requests
        if spec.arrivals == "clients":
            return fire(socket, sent.requests, spec.concurrency, spec.seconds)
        return replay(
            socket, sent.requests, sent.arrivals_s, spec.speed, spec.concurrency, spec.seconds
        )

    def _again(self, config: pb.ModelConfig, first: TrialMeasurement) -> TrialMeasurement:
        second = self._measure(config)
        if isinstance(second, str):
            return first
        means = [(one + other) / 2 for one, other in zip(first, second, strict=True)]
        missed = max(first.missed, second.missed)
        return TrialMeasurement(means[0], means[1], means[2], 0, int(means[4]), means[5], missed)

    def _report(
        self, best: TrialSettings, before: TrialMeasurement, after: TrialMeasurement
    ) -> Report:
        worse = score(self._spec, after) <= score(self._spec, before)
        missed = score(self._spec, after) < 0
        task = self._work.task
        return Report(
            title=f"Profile {self._spec.model}",
            verdict="advice",
            reasons=(_reason(self._spec, best, after, worse=worse, missed=missed),),
            warnings=warnings_of(self._spec, self._requests, has_data=bool(task.data)),
            figures=_figures(before, after),
            tables=(_table(self.found),),
            plots=(_plot(self.found, before),),
            spec=spec_fields(task),
            versions=versions(("optuna", "onnxruntime", "numpy")),
            digests=digests(task),
            cpu=cpu_name(),
            config="" if worse or missed else as_text(best),
        )


def _reason(
    spec: ProfileSpec, best: TrialSettings, after: TrialMeasurement, *, worse: bool, missed: bool
) -> str:
    found = (
        f"{_words(best)}: {after.per_second:.1f} requests a second, 99th percentile "
        f"{after.p99_ms:.2f} ms"
    )
    if after.missed:
        return (
            f"no choice of settings keeps up with the requests that come; the nearest is {found}, "
            f"and {after.missed} requests could not be sent"
        )
    if missed:
        bound = (
            f"{spec.latency_ms:g} ms"
            if spec.goal == "throughput"
            else f"{spec.per_second:g} a second"
        )
        return f"no choice of settings keeps to {bound}; the nearest is {found}"
    if worse:
        return f"the settings in force are as good as any tried; the best of these is {found}"
    return f"best is {found}"


def _figures(before: TrialMeasurement, after: TrialMeasurement) -> tuple[Figure, ...]:
    return (
        Figure("requests a second", "1/s", before.per_second, after.per_second, "higher"),
        Figure("median latency", "ms", before.p50_ms, after.p50_ms, "lower"),
        Figure("99th percentile of latency", "ms", before.p99_ms, after.p99_ms, "lower"),
        Figure("memory of the server", "bytes", before.memory, after.memory, "lower"),
        Figure("server's CPU time for an answer", "ms", before.cpu_ms, after.cpu_ms, "lower"),
    )


def _table(found: dict[TrialSettings, TrialMeasurement]) -> ReportTable:
    columns = (
        *TrialSettings._fields,
        "requests a second",
        "p50 ms",
        "p99 ms",
        "memory bytes",
        "CPU ms an answer",
    )
    rows = tuple((*settings, *_rounded(one)) for settings, one in found.items())
    return ReportTable("Choices measured", columns, rows)


def _rounded(one: TrialMeasurement) -> tuple[float, ...]:
    latencies = round(one.p50_ms, 3), round(one.p99_ms, 3)
    return round(one.per_second, 1), *latencies, one.memory, round(one.cpu_ms, 4)


def _plot(found: dict[TrialSettings, TrialMeasurement], before: TrialMeasurement) -> Plot:
    samples = list(found.values())
    names = [_words(one) for one in found]
    front = pareto(samples)
    return Plot(
        "Latency against throughput", "requests a second", "99th percentile, ms",
        (
            PlotSeries(
                "choices",
                tuple((one.per_second, one.p99_ms) for one in samples),
                {str(at): names[at] for at in front},
            ),
            PlotSeries("in force", ((before.per_second, before.p99_ms),)),
        ),
        "scatter",
    )  # fmt: skip


def _words(settings: TrialSettings) -> str:
    parts = [f"{settings.instances} instances"]
    if settings.batch:
        parts.append(f"batches of {settings.batch}")
    if settings.batch > 1:
        parts.append(f"{settings.delay_us} µs delay")
    if settings.threads:
        parts.append(f"{settings.threads} threads")
    return ", ".join(parts)


def _requests(work: Work, spec: ProfileSpec, config: pb.ModelConfig) -> TrialRequests:
    task = work.task
    if spec.data == SAMPLED:
        return sampled_requests(config, task.data, task.seed)
    made = make_requests(config, spec.rows, task.data, task.seed)
    return TrialRequests(made, [], spec.rows)


def _refuse_arrivals(spec: ProfileSpec) -> None:
    if spec.arrivals == "clients":
        return
    if spec.data != SAMPLED:
        refuse(f"arrivals are 'sampled', so data must be '{SAMPLED}', too")
    if spec.goal != "latency":
        refuse(
            "sampled requests arrive at a rate of their own, whatever the settings: set the goal "
            "'latency', or arrivals 'clients' for the most requests a second"
        )


def _refuse_unmeasured(config: pb.ModelConfig) -> None:
    if config.backend == "llm":
        refuse("a language model is not profiled: its engine chooses the batch of each step itself")
    if config.backend == "python":
        refuse("a Python model runs code of its own, which a profile does not")
    if config.platform == "ensemble" or config.HasField("ensemble_scheduling"):
        refuse("an ensemble has no settings of its own; profile its steps")
    if config.HasField("sequence_batching") or config.model_transaction_policy.decoupled:
        refuse("a profile measures models that give one response to each request, in any order")
    if not config.input:
        refuse("config.pbtxt names no inputs")
