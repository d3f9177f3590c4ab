"""Which features a tensor has, and the little that is copied of it for them. Pure.

What is copied of one request is bounded whatever its size: up to MOST_ROWS rows, and of a row no
more than LOOKED_AT elements, spread evenly. It is reduced to counts within a second, on a thread.
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Literal, NamedTuple

import numpy as np

from control.drift.points import MOST_FEATURES, MOST_NAME, FeatureRole
from repository.config.tensors import Array
from server.signature import Signature, TensorSpec

MOST_ROWS = 8
LOOKED_AT = 4096
MOST_IMAGES = 4
"""Rows of an image, or of another large tensor."""

MOST_ELEMENTS = 64
MOST_TEXTS, MOST_OUTPUTS = 16, 8
MOST_CLASSES = 1_000
LONGEST_TEXT = 256
"""Bytes of a string that are looked at; its length is told whole."""

PlanKind = Literal["elements", "channels", "summary", "texts", "scores", "labels"]


class TensorPlan(NamedTuple):
    """`features`: the names of what is counted, in order. `rows`: whether the tensor has a batch
    dimension; `channel`: of an image, the axis of channels behind it; `labels`: of classes."""

    tensor: str
    kind: PlanKind
    role: FeatureRole
    features: tuple[str, ...]
    rows: bool
    channel: int = 0
    labels: tuple[str, ...] = ()


class CopiedTensor(NamedTuple):
    """What `copied` made of a tensor."""

    plan: TensorPlan
    values: Any


class FeaturePlan(NamedTuple):
    """Of a version. `left_out`: features beyond the most."""

    inputs: tuple[TensorPlan, ...]
    outputs: tuple[TensorPlan, ...]
    left_out: int


def plan_of(signature: Signature, labels: str) -> FeaturePlan:
    """`labels`: the output that has the labels or scores of classes, "" to find it out, "-" for
    none."""
    batched = signature.max_batch > 0
    named = _label_output(signature.outputs, labels)
    plans = [] if named is None else [_label_plan(signature.outputs[named], batched)]
    plans += [_plan(spec, batched, "input") for spec in signature.inputs.values()]
    plans += [
        _plan(spec, batched, "output")
        for name, spec in signature.outputs.items()
        if name != named and spec.datatype != "BYTES" and 0 < _size(spec) <= MOST_OUTPUTS
    ]
    kept, left_out, room = [], 0, MOST_FEATURES
    for plan in plans:
        whole = plan.features[:room]
        left_out += len(plan.features) - len(whole)
        room -= len(whole)
        if whole and (len(whole) == len(plan.features) or plan.kind == "elements"):
            kept.append(plan._replace(features=whole))
    inputs = tuple(plan for plan in kept if plan.role == "input")
    outputs = tuple(plan for plan in kept if plan.role != "input")
    more = sum(max(0, _size(spec) - MOST_TEXTS) for spec in _texts(signature))
    return FeaturePlan(inputs, outputs, left_out + more)


def _texts(signature: Signature) -> list[TensorSpec]:
    return [spec for spec in signature.inputs.values() if spec.datatype == "BYTES"]


def _label_output(outputs: Mapping[str, TensorSpec], labels: str) -> str | None:
    if labels:
        return labels if labels in outputs and _has_labels(outputs[labels]) else None
    named = [name for name, spec in outputs.items() if spec.labels and _has_labels(spec)]
    whole = [name for name, spec in outputs.items() if _size(spec) == 1 and not _is_float(spec)]
    scores = [name for name, spec in outputs.items() if _is_scores(spec)]
    return next(iter([*named, *whole, *scores]), None)


def _has_labels(spec: TensorSpec) -> bool:
    """Not of scores of each pixel, of which a copy would be large."""
    return _is_scores(spec) if _is_float(spec) else True


def _is_scores(spec: TensorSpec) -> bool:
    wide = [dim for dim in spec.dims if dim != 1]
    return _is_float(spec) and len(wide) == 1 and 2 <= wide[0] <= MOST_CLASSES


def _is_float(spec: TensorSpec) -> bool:
    return spec.datatype.startswith(("FP", "BF"))


def _size(spec: TensorSpec) -> int:
    """Elements of a row; 0 where that is not fixed."""
    return prod(spec.fixed) if spec.fixed is not None else 0


def _label_plan(spec: TensorSpec, batched: bool) -> TensorPlan:
    if _is_float(spec):
        names = (spec.name, f"{spec.name}.confidence")
        return TensorPlan(spec.name, "scores", "label", names, batched, labels=spec.labels)
    return TensorPlan(spec.name, "labels", "label", (spec.name,), batched)


def _plan(spec: TensorSpec, batched: bool, role: FeatureRole) -> TensorPlan:
    name, size = spec.name[:MOST_NAME], _size(spec)
    if spec.datatype == "BYTES":
        names = _element_names(name, spec.dims)[:MOST_TEXTS] if size else (name,)
        both = tuple(each for one in names for each in (one, f"{one}.length"))
        return TensorPlan(spec.name, "texts", role, both, batched)
    if 0 < size <= MOST_ELEMENTS:
        return TensorPlan(spec.name, "elements", role, _element_names(name, spec.dims), batched)
    channel = _channel_axis(spec.dims)
    if channel is not None:
        each = range(spec.dims[channel])
        names = tuple(f"{name}.{what}[{c}]" for c in each for what in ("mean", "std"))
        return TensorPlan(spec.name, "channels", role, names, batched, channel)
    names = tuple(f"{name}.{what}" for what in ("mean", "std", "min", "max"))
    if -1 in spec.dims:
        names = (*names, f"{name}.size")
    return TensorPlan(spec.name, "summary", role, names, batched)


def _channel_axis(dims: Sequence[int]) -> int | None:
    if len(dims) != 3:
        return None
    return next((axis for axis in (0, 2) if dims[axis] in (1, 3, 4)), None)


def _element_names(name: str, dims: Sequence[int]) -> tuple[str, ...]:
    size = prod(dims)
    if size == 1:
        return (name,)
    wide = [dim for dim in dims if dim != 1]
    return tuple(
        f"{name}[{','.join(str(int(place)) for place in np.unravel_index(index, wide))}]"
        for index in range(size)
    )


# what is copied of one request, on the event loop


def copied_tensors(plans: Sequence[TensorPlan], tensors: Mapping[str, Array]) -> list[CopiedTensor]:
    """Of those that are there; an empty one says nothing."""
    return [
        CopiedTensor(plan, copied(plan, array))
        for plan in plans
        if (array := tensors.get(plan.tensor)) is not None and array.size
    ]


def copied(plan: TensorPlan, array: Array) -> Any:
    """A copy of what is needed of it: a list of lists of bytes for texts, a float32 array of
    (rows, elements) otherwise, with the elements of a channel on an axis of their own."""
    rows = array if plan.rows else array[np.newaxis]
    most = MOST_IMAGES if plan.kind in ("channels", "summary") else MOST_ROWS
    if len(rows) > most:
        rows = rows[:: -(-len(rows) // most)]
    if plan.kind == "labels" and array.dtype == np.object_:
        return rows.reshape(len(rows), -1)[:, 0].tolist()
    if array.dtype == np.object_:
        return rows.reshape(len(rows), -1)[:, :MOST_TEXTS].tolist()
    if plan.kind == "channels":
        apart = np.moveaxis(rows, plan.channel + 1, 1)
        flat: Array = apart.reshape(len(apart), apart.shape[1], -1)
    else:
        flat = rows.reshape(len(rows), -1)
    if plan.kind == "elements":
        flat = flat[:, : len(plan.features)]
    elif plan.kind in ("channels", "summary") and flat.shape[-1] > LOOKED_AT:
        flat = flat[..., :: -(-flat.shape[-1] // LOOKED_AT)]
    if plan.kind == "labels":
        return flat[:, 0].tolist()
    with np.errstate(over="ignore"):  # what no float32 holds counts as not finite
        return flat.astype(np.float32)
