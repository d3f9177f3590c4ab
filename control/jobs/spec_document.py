"""A job's spec out of a document that somebody sent, with errors that name the field. Pure."""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, get_args

import msgspec
from msgspec import inspect

from control.errors import Invalid
from control.jobs.policy.limits import JobLimits
from control.jobs.spec import JOB_TYPES, JobSpec
from control.message_faults import fault_in

_KINDS: dict[str, type[msgspec.Struct]] = dict(zip(JOB_TYPES, get_args(JobSpec), strict=True))

_DATA = "data"
"""The field that may also name a file or folder by an absolute path; a worker takes it below the
folders of --job-data-dir alone."""

_PATHS = (_DATA, "recipe", "calibration", "held_out")
"""Fields that name files, by their paths below folders of the job."""

_LONGEST_PATH, _DEEPEST, _LONGEST_NAME = 1_024, 32, 255
"""Of these, below what Linux has files for."""

_NAMES: tuple[tuple[type[inspect.Type], str], ...] = (
    (inspect.BoolType, "true or false"),
    (inspect.IntType, "a whole number"),
    (inspect.FloatType, "a number"),
    (inspect.StrType, "a text"),
    (inspect.ListType, "a list"),
    (inspect.VarTupleType, "a list"),
    (inspect.DictType, "an object"),
    (inspect.StructType, "an object"),
)


def read_spec(document: Mapping[str, Any]) -> JobSpec:
    """The spec whose type the document's field `type` names. Raises Invalid naming the field, what
    it is, and what would work."""
    kind = _KINDS.get(str(document.get("type")))
    if kind is None:
        found = document.get("type", "missing")
        raise Invalid(f"type is {found!r:.80}; give {', '.join(JOB_TYPES)}", "type")
    _check_names(kind, document, "type")
    spec: Any = _converted(kind, document)
    for name in _PATHS:
        _check_path(name, getattr(spec, name, ""))
    return spec  # type: ignore[no-any-return]


def read_limits(document: Mapping[str, Any], base: JobLimits) -> JobLimits:
    """`base` with what the document says instead. Raises Invalid naming the field."""
    _check_names(JobLimits, document, "")
    limits: JobLimits = _converted(JobLimits, msgspec.to_builtins(base) | dict(document))
    return limits


def _check_names(kind: type[msgspec.Struct], document: Mapping[str, Any], also: str) -> None:
    fields = {one.encode_name: one for one in msgspec.structs.fields(kind)}
    for name in document:
        if name not in fields and not (also and name == also):
            what = f"jobs of the type {document[also]}" if also else "the limits of a job"
            raise Invalid(
                f"{what} have no field '{name:.80}'; there are {', '.join(fields)}", name[:80]
            )
    for name, field in fields.items():
        if field.required and name not in document:
            raise Invalid(f"{name} is missing", name)


def _converted(kind: type[msgspec.Struct], document: Mapping[str, Any]) -> Any:
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        fault = fault_in(document, error)
        name = str(fault.path[0]) if fault.path else ""
        wanted = _wanted(inspect.type_info(kind), name)
        shown = ".".join(map(str, fault.path))
        raise Invalid(f"{shown} is {fault.value!r:.80}; it must be {wanted}", name) from None


def _wanted(kind: inspect.Type, name: str) -> str:
    assert isinstance(kind, inspect.StructType)
    field = next(one for one in kind.fields if one.encode_name == name)
    return _described(field.type)


def _described(kind: inspect.Type) -> str:
    if isinstance(kind, inspect.Metadata):
        return _described(kind.type)
    if isinstance(kind, inspect.UnionType):
        return " or ".join(map(_described, kind.types))
    if isinstance(kind, inspect.NoneType):
        return "null"
    if isinstance(kind, inspect.LiteralType):
        return "one of " + ", ".join(map(str, kind.values))
    if isinstance(kind, inspect.EnumType):
        return "one of " + ", ".join(str(one.value) for one in kind.cls)
    if isinstance(kind, inspect.ListType | inspect.VarTupleType):
        return f"a list, each {_described(kind.item_type)}"
    name = next((text for type_, text in _NAMES if isinstance(kind, type_)), "of another kind")
    return name + _bounds(kind)


def _bounds(kind: inspect.Type) -> str:
    signs = (("ge", "of at least"), ("gt", "above"), ("le", "of at most"), ("lt", "below"))
    lengths = (("min_length", "of at least"), ("max_length", "of at most"))
    numbers = [f"{text} {_plain(getattr(kind, name))}" for name, text in signs if _has(kind, name)]
    sizes = [f"{text} {getattr(kind, name)} items" for name, text in lengths if _has(kind, name)]
    if isinstance(kind, inspect.StrType):
        sizes = [one.replace("items", "characters") for one in sizes]
    found = " and ".join(numbers + sizes)
    return f" {found}" if found else ""


def _plain(bound: float) -> float:
    """1 for 1.0: to `typing` both are the same `Meta`, and the module imported first decides."""
    return int(bound) if bound == int(bound) else bound


def _has(kind: inspect.Type, name: str) -> bool:
    return getattr(kind, name, None) is not None


def _check_path(name: str, path: str) -> None:
    pure = PurePosixPath(path)
    parts = [len(one.encode()) for one in pure.parts] if path.isprintable() else []
    if len(path) > _LONGEST_PATH or len(parts) > _DEEPEST or max(parts, default=0) > _LONGEST_NAME:
        raise Invalid(
            f"{name} is '{path:.80}…'; give a path of at most {_LONGEST_PATH} characters and "
            f"{_DEEPEST} folders, each name of at most {_LONGEST_NAME} bytes",
            name,
        )
    is_outside = pure.is_absolute() and name != _DATA
    if is_outside or ".." in pure.parts or "\\" in path or not (path + "x").isprintable():
        raise Invalid(
            f"{name} is '{path:.80}'; give a path below the model's folder, without '..'", name
        )
