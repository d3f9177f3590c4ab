"""An instance of a sequence model: adds controls and states to a batch, runs it, keeps the states.

It stands around the runtime's own instance wherever that is: in the server, or in its worker, so
that states never travel.
"""

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter_ns
from typing import Any

import numpy as np

from backends.errors import ExecutionFailed, FaultyModel, SequenceLost
from backends.seam import (
    SEQUENCE_END,
    SEQUENCE_START,
    Batch,
    BatchResult,
    Instance,
    Member,
    ResponseSender,
    Result,
    SequenceRows,
    Tensors,
)
from backends.sequences.controls import Controls
from backends.sequences.member import SequenceMember
from backends.sequences.states import SlotStates, StateTensor
from backends.stacked import StackedInstance
from repository.config.tensors import Array
from repository.model import ModelVersion


class SequenceInstance:
    """Implements `Instance` and `StreamingInstance`. Executions without `Batch.sequences`, such as
    warm-up, are those of sequences of one request each, and leave no state."""

    def __init__(
        self, inner: Instance, version: ModelVersion, states: Sequence[StateTensor]
    ) -> None:
        """`version.config` as clients see it; `inner` serves the expanded one."""
        self.device, self.cores = inner.device, inner.cores
        self.ready = True
        self.changed: Callable[[], None] = lambda: None
        self._inner: Any = inner
        self.streams: bool = getattr(inner, "streams", False)
        if hasattr(inner, "check_ready"):
            self.check_ready: Callable[[], bool] = inner.check_ready
        config = version.config
        self._where = f"model '{version.name}' version {version.number}"
        self._batched = config.max_batch_size > 0
        self._stacks = isinstance(inner, StackedInstance) and self._batched
        self._outputs = tuple(tensor.name for tensor in config.output)
        self._state_names = tuple(state.output_name for state in states)
        self._controls = Controls(config)
        self._states = SlotStates(states, self._batched, self._where)
        self._live: set[int] = set()

    @property
    def kept(self) -> int:
        """Sequences whose states are kept now."""
        return len(self._states)

    @property
    def state_bytes(self) -> int:
        """That the kept states take; any thread may ask."""
        return self._states.size_bytes

    def close(self) -> None:
        self.ready = False
        self._inner.close()

    def execute(self, batch: Batch) -> BatchResult:
        """Run one batch. A request of a sequence that this instance does not know, and that does
        not start one, gets `SequenceLost`; nobody's state is changed by an execution that fails."""
        began = perf_counter_ns()
        sequences, transient = self._sequences(batch)
        self._release(sequences.released)
        results: list[Result | None] = [None] * len(batch.members)
        spent = _Spent()
        go_on = not any(sequences.flags) and self._live.issuperset(sequences.slots)
        if not go_on:  # nearly all batches do, and nothing is to be asked of each request
            results = self._refusals(batch, sequences, transient)
        runs = range(len(results)) if go_on else [i for i, one in enumerate(results) if one is None]
        for group in self._groups(sequences, runs):
            self._execute_group(_ExecutionGroup(batch, sequences, group), results, spent)
        if transient:
            self._states.drop(sequences.slots)
        elif not go_on:
            self._note(sequences, results)
        inside = spent.infer_ns + spent.output_ns
        return BatchResult(
            [one if one is not None else _no_result(self._where) for one in results],
            max(0, perf_counter_ns() - began - inside),
            spent.infer_ns,
            spent.output_ns,
            spent.parameters,
        )

    def stream(self, batch: Batch, outlets: Sequence[ResponseSender]) -> BatchResult:
        """Hand a batch to a decoupled model, whose config has controls and no states."""
        if not batch.members:
            return BatchResult([], 0, 0, 0)
        sequences, _ = self._sequences(batch)
        group = _ExecutionGroup(batch, sequences._replace(height=0), range(len(batch.members)))
        members = self._apart(group)
        outcome: BatchResult = self._inner.stream(
            Batch(members, batch.rows, batch.batched), outlets
        )
        return outcome

    # which members, in which executions

    def _sequences(self, batch: Batch) -> tuple[SequenceRows, bool]:
        if batch.sequences is not None:
            return batch.sequences, False
        count = len(batch.members)
        return SequenceRows(
            tuple(range(-2, -2 - count, -1)), (SEQUENCE_START | SEQUENCE_END,) * count
        ), True

    def _refusals(
        self, batch: Batch, sequences: SequenceRows, transient: bool
    ) -> list[Result | None]:
        """What each request is told that is not to be executed, None for the others."""
        if transient:
            return [self._unknown(batch, index) for index in range(len(batch.members))]
        return [
            None if slot in self._live or flags & SEQUENCE_START else self._lost(member)
            for slot, flags, member in zip(
                sequences.slots, sequences.flags, batch.members, strict=True
            )
        ]

    def _unknown(self, batch: Batch, index: int) -> Result | None:
        """A request of several rows, which only a warm-up sample can be."""
        if batch.rows[index] == 1:
            return None
        return ExecutionFailed(f"{self._where}: requests of sequences have one row each")

    def _lost(self, member: Member) -> SequenceLost:
        return SequenceLost(
            f"sequence {member.correlation_id} of {self._where} is lost: its instance was "
            "restarted and its state is gone; start the sequence again"
        )

    def _groups(self, sequences: SequenceRows, members: Sequence[int]) -> Sequence[Sequence[int]]:
        """The members that can be executed together: those whose states have equal shapes."""
        if not members:
            return []
        if not self._states.variable or len(members) == 1:
            return [members]
        groups: dict[object, list[int]] = {}
        for index in members:
            starts = bool(sequences.flags[index] & SEQUENCE_START)
            shapes = self._states.shapes(sequences.slots[index], starts)
            groups.setdefault(shapes, []).append(index)
        return list(groups.values())

    def _execute_group(
        self, group: "_ExecutionGroup", results: list[Result | None], spent: "_Spent"
    ) -> None:
        """Where a stacked runtime refuses several requests together, each is tried alone, so that
        one client's values cost nobody else an answer. Any other may keep states of its own, and
        may have taken a step of some of them: nothing is executed again there."""
        run = self._run_stacked if self._stacks else self._run_apart
        try:
            run(group, results, spent)
        except ExecutionFailed as error:
            if len(group.members) == 1 or not self._stacks:
                for index in group.indexes:
                    results[index] = error
                return
            for index in group.indexes:
                self._execute_group(group.only(index), results, spent)
        except FaultyModel as error:
            for index in group.indexes:
                results[index] = error

    # one execution

    def _run_stacked(
        self, group: "_ExecutionGroup", results: list[Result | None], spent: "_Spent"
    ) -> None:
        members, height, at = group.members, group.height, group.at
        inputs: dict[str, Array] = {
            name: _stack([member.inputs[name] for member in members], at, height)
            for name in members[0].inputs
        }
        keys = group.keys if self._controls.has_keys else ()
        inputs.update(self._controls.arrays(group.flags, keys, at, height))
        if self._state_names:
            inputs.update(self._states.gather(group.slots, group.starts, at, height))
        wanted = Batch(members, group.ones, True).requested_outputs() or self._outputs
        names = (*wanted, *(name for name in self._state_names if name not in wanted))
        whole = SequenceMember(inputs, names)
        outcome: BatchResult = self._inner.execute(Batch((whole,), (height,), True))
        spent.add(outcome)
        began = perf_counter_ns()
        outputs = outcome.results[0]
        if isinstance(outputs, Exception):
            raise outputs
        callers = [] if len(members) > 1 else list(members[0].inputs.values())
        self._states.keep(outputs, group.slots, at, height, callers)
        for index, result in zip(group.indexes, _apart(outputs, wanted, members, at), strict=True):
            results[index] = result
        spent.output_ns += perf_counter_ns() - began

    def _run_apart(
        self, group: "_ExecutionGroup", results: list[Result | None], spent: "_Spent"
    ) -> None:
        """For runtimes that want each request's own tensors."""
        rows = self._apart(group)
        outcome: BatchResult = self._inner.execute(Batch(rows, (1,) * len(rows), self._batched))
        spent.add(outcome)
        for position, (index, member) in enumerate(zip(group.indexes, group.members, strict=True)):
            row = group.at[position]
            result = outcome.results[row]
            if row in outcome.parameters:
                spent.parameters[index] = outcome.parameters[row]
            if isinstance(result, Exception):
                results[index] = result
                continue
            missing = [name for name in self._state_names if name not in result]
            if missing:
                results[index] = FaultyModel(
                    f"{self._where} is faulty: it did not return the state {', '.join(missing)}"
                )
                continue
            slots, callers = (group.slots[position],), list(member.inputs.values())
            try:
                self._states.keep(result, slots, (0,), 1, callers)
            except FaultyModel as error:
                results[index] = error
                continue
            wanted = member.requested_outputs or self._outputs
            results[index] = {name: result[name] for name in wanted if name in result}

    def _apart(self, group: "_ExecutionGroup") -> list[SequenceMember]:
        """A member per row, with its own controls and states; rows of nobody have zeros."""
        wanted = self._outputs
        keys = group.keys if self._controls.has_keys else ()
        controls = self._controls.arrays(group.flags, keys, group.at, group.height)
        starts = group.starts
        template = group.members[0].inputs
        rows = [
            SequenceMember({name: _blank(array) for name, array in template.items()}, ())
            for _ in range(group.height)
        ]
        for position, (member, row) in enumerate(zip(group.members, group.at, strict=True)):
            names = member.requested_outputs or wanted
            extra = tuple(name for name in self._state_names if name not in names)
            inputs = dict(member.inputs)
            inputs.update(self._states.row(group.slots[position], starts[position]))
            rows[row] = SequenceMember(inputs, (*names, *extra), member, group.flags[position])
        taken = set(group.at)
        for row, one in enumerate(rows):
            added = {
                name: array[row : row + 1] if self._batched else array[row]
                for name, array in controls.items()
            }
            if row not in taken:
                added.update(self._states.row(-1, True))
            one.inputs = {**one.inputs, **added}
        return rows

    # what is known of the slots

    def _release(self, slots: Sequence[int]) -> None:
        if slots:
            self._states.drop(slots)
            self._live.difference_update(slots)

    def _note(self, sequences: SequenceRows, results: Sequence[Result | None]) -> None:
        """Remember who lives, and forget those that have ended."""
        ended = []
        for slot, flags, result in zip(sequences.slots, sequences.flags, results, strict=True):
            if flags & SEQUENCE_END:
                ended.append(slot)
            elif not isinstance(result, SequenceLost):
                self._live.add(slot)
        self._release(ended)


class _ExecutionGroup:
    """The members of a batch that one execution serves; `at` are their rows of `height`."""

    __slots__ = (
        "at",
        "batch",
        "flags",
        "height",
        "indexes",
        "members",
        "ones",
        "sequences",
        "slots",
    )

    def __init__(self, batch: Batch, sequences: SequenceRows, indexes: Sequence[int]) -> None:
        self.batch, self.sequences, self.indexes = batch, sequences, indexes
        self.members: Sequence[Member]
        if len(indexes) == len(batch.members):
            self.members, self.slots = batch.members, sequences.slots
            self.flags = sequences.flags
        else:
            self.members = [batch.members[index] for index in indexes]
            self.slots = tuple(sequences.slots[index] for index in indexes)
            self.flags = tuple(sequences.flags[index] for index in indexes)
        self.height = sequences.height or len(indexes)
        self.at = self.slots if sequences.height else tuple(range(len(indexes)))
        self.ones = (1,) * len(indexes)

    @property
    def starts(self) -> list[bool]:
        """Of each member, whether its sequence begins."""
        return [flag & SEQUENCE_START != 0 for flag in self.flags]

    @property
    def keys(self) -> list[int | str]:
        """The members' correlation ids."""
        return [member.correlation_id for member in self.members]

    def only(self, index: int) -> "_ExecutionGroup":
        return _ExecutionGroup(self.batch, self.sequences, (index,))


class _Spent:
    """Time of several executions, and what they say of single members."""

    def __init__(self) -> None:
        self.infer_ns = self.output_ns = 0
        self.parameters: dict[int, Mapping[str, Any]] = {}

    def add(self, outcome: BatchResult) -> None:
        self.infer_ns += outcome.infer_ns
        self.output_ns += outcome.output_ns


def _stack(arrays: Sequence[Array], rows: Sequence[int], height: int) -> Array:
    if len(arrays) == height:
        return arrays[0] if height == 1 else np.concatenate(arrays)
    stacked = _blank_rows(arrays[0], height)
    stacked[list(rows)] = np.concatenate(arrays)
    return stacked


def _blank_rows(array: Array, height: int) -> Array:
    shape = (height, *array.shape[1:])
    if array.dtype == np.object_:
        return np.full(shape, b"", np.object_)
    return np.zeros(shape, array.dtype)


def _blank(array: Array) -> Array:
    if array.dtype == np.object_:
        return np.full(array.shape, b"", np.object_)
    return np.zeros(array.shape, array.dtype)


def _apart(
    outputs: Tensors, wanted: tuple[str, ...], members: Sequence[Member], rows: Sequence[int]
) -> list[Tensors]:
    """Each member's row of what it asked for, as views."""
    columns = {name: outputs[name][:, None] for name in wanted}
    if len(columns) == 1:
        (name,) = columns
        parts = list(columns[name])
        return [{name: parts[row]} for row in rows]
    split = {name: list(column) for name, column in columns.items()}
    return [
        {name: split[name][row] for name in member.requested_outputs or wanted}
        for member, row in zip(members, rows, strict=True)
    ]


def _no_result(where: str) -> FaultyModel:
    return FaultyModel(f"{where}: no result. This is a bug.")
