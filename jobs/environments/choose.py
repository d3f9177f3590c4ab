"""Which environment a job's tool runs in, and what it needs there. Pure."""

from control.jobs.spec import JobSpec

_BY_TYPE = {
    "convert": "convert",
    "optimise": "onnx",
    "quantise": "onnx",
    "quantise_llm": "torch",
    "prune": "torch",
    "distil": "torch",
    "profile": "profile",
}
"""By the type of a job: the name of a lock in `jobs/environments/locks`."""

_BY_TARGET = {"openvino": "openvino", "ncnn": "ncnn"}
"""Conversions to such a format need what would be dead weight for all others."""


def environment_of(spec: JobSpec) -> str:
    """The name of the environment's lock."""
    name = _BY_TYPE[str(spec.__struct_config__.tag)]
    return _BY_TARGET.get(str(getattr(spec, "target", "")), name) if name == "convert" else name


def starts_programs(spec: JobSpec) -> bool:
    """Whether the tool starts processes beside its own: a profile's server, and pnnx."""
    return environment_of(spec) in ("profile", "ncnn")
