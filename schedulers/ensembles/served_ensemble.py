"""One loaded ensemble: its graph, held against the models that serve its steps now.

A step's model may be reloaded, unloaded and loaded again while the ensemble stays loaded; requests
are only taken while the graph fits what serves. All on the loop's thread, but for `execute`.
"""

from collections.abc import Callable
from typing import NoReturn

from backends.errors import ExecutionFailed
from backends.seam import Batch, BatchResult
from repository.config.ensemble_graph import EnsembleGraph
from schedulers.callee_signature import CalleeSignature
from schedulers.ensembles.policy.compile import (
    CompiledEnsemble,
    CompiledStep,
    FindSignatures,
    compile_ensemble,
)
from schedulers.ensembles.policy.request_plan import RequestPlan, plan_for

MOST_PLANS = 64
"""Sets of requested outputs whose plans are remembered."""


class ServedEnsemble:
    """What stands where other models have their instances: `ready` says whether every step's model
    serves, and still fits."""

    device = "cpu"
    cores = 0

    def __init__(
        self,
        graph: EnsembleGraph,
        own: CalleeSignature,
        compiled: CompiledEnsemble,
        find: FindSignatures,
    ) -> None:
        self.changed: Callable[[], None] = lambda: None
        self.not_ready_reason = ""
        self._graph = graph
        self._callees = graph.callees()
        self._own = own
        self._find = find
        self._compiled = compiled
        self._fits: tuple[CalleeSignature, ...] = ()
        self._looking = False
        self._plans: dict[tuple[str, ...], RequestPlan] = {}

    @property
    def compiled_steps(self) -> tuple[CompiledStep, ...]:
        """In the order of the config."""
        return self._compiled.steps

    @property
    def ready(self) -> bool:
        """A front end asks for each request; while nothing changed, the steps' models are only
        looked up."""
        found: list[CalleeSignature] = []
        if self._looking:
            self.not_ready_reason = "a step that waits for the ensemble itself"
            return False
        self._looking = True
        try:
            for callee in self._callees:
                found += self._find(*callee)
        except Exception as error:  # noqa: BLE001 - whatever keeps a model from being found
            self.not_ready_reason = f"a step that cannot run: {error}"
            return False
        finally:
            self._looking = False
        if tuple(found) == self._fits:
            return True
        return self._compile()

    def _compile(self) -> bool:
        signatures = find_all(self._graph, self._find)
        compiled = compile_ensemble(self._graph, self._own, signatures)
        if isinstance(compiled, list):
            reasons = "; ".join(misfit.message for misfit in compiled)
            self.not_ready_reason = f"steps whose models have changed: {reasons}"
            return False
        if compiled.decoupled != self._compiled.decoupled:
            self.not_ready_reason = (
                "a step whose model answered once before and now several times, or the other way "
                "round; load the ensemble again"
            )
            return False
        self._compiled = compiled
        self._plans.clear()
        self._fits = tuple(one for each in signatures.values() for one in each)
        self.not_ready_reason = ""
        return True

    def plan(self, requested: tuple[str, ...]) -> RequestPlan:
        """What a request for these outputs, () for all, follows."""
        plan = self._plans.get(requested)
        if plan is None:
            if len(self._plans) >= MOST_PLANS:
                self._plans.clear()
            plan = self._plans[requested] = plan_for(self._compiled, requested)
        return plan

    def execute(self, batch: Batch) -> BatchResult:
        _is_not_executed(batch)

    def close(self) -> None:
        """Its steps' models are not its own."""


def find_all(
    graph: EnsembleGraph, find: FindSignatures
) -> dict[tuple[str, str], tuple[CalleeSignature, ...]]:
    """The signatures of every callee. Raises what `find` does."""
    return {callee: tuple(find(*callee)) for callee in graph.callees()}


def _is_not_executed(batch: Batch) -> NoReturn:
    raise ExecutionFailed(f"an ensemble got {len(batch.rows)} requests to execute. This is a bug.")
