"""JSON schemas of REST's bodies, by the names `server.rest.openapi.build` refers to them by."""

from control.openapi_document import Schema, reference
from repository.config.tensors import DATA_TYPES

STRING: Schema = {"type": "string"}
NATURAL: Schema = {"type": "integer", "minimum": 0}
BOOLEAN: Schema = {"type": "boolean"}
_SCALAR: Schema = {"type": ["boolean", "integer", "number", "string"]}
_INT64: Schema = {"type": "integer", "minimum": -(1 << 63), "maximum": (1 << 63) - 1}


def items(of: Schema) -> Schema:
    return {"type": "array", "items": of}


def members(required: str = "", /, **properties: Schema) -> Schema:
    """An object; `required` names the members it must have, separated by spaces."""
    found: Schema = {"type": "object", "properties": properties}
    return {**found, "required": required.split()} if required else found


_DATA: Schema = {
    "description": "The elements in row-major order, flat or nested: numbers, booleans or strings. "
    "Floating-point elements may be the tokens NaN, Infinity and -Infinity.",
    "type": "array",
}
_DATATYPE: Schema = {"type": "string", "enum": [row.name for row in DATA_TYPES]}
_SHAPE = items({"type": "integer", "minimum": 0, "maximum": (1 << 63) - 1})
_MEMORY = {
    "shared_memory_region": STRING,
    "shared_memory_offset": NATURAL,
    "shared_memory_byte_size": NATURAL,
}
_TENSOR_FACTS = members(
    "name datatype shape", name=STRING, datatype=_DATATYPE, shape=items({"type": "integer"})
)
_DURATION = members("count ns", count=NATURAL, ns=NATURAL)

SCHEMAS: dict[str, Schema] = {
    "Error": members("error", error={"type": "string", "description": "What happened, and why."}),
    "Welcome": members(
        "name version links",
        name=STRING,
        version=STRING,
        links={"type": "object", "additionalProperties": STRING},
    ),
    "ServerMetadata": members(
        "name version extensions", name=STRING, version=STRING, extensions=items(STRING)
    ),
    "ModelMetadata": members(
        "name versions platform inputs outputs",
        name=STRING,
        versions=items(STRING),
        platform=STRING,
        inputs=items(_TENSOR_FACTS),
        outputs=items(_TENSOR_FACTS),
    ),
    "ModelConfig": {
        "type": "object",
        "description": "Triton's ModelConfig message: proto field names, enum names, every "
        "default spelled out.",
        "required": ["name", "max_batch_size", "input", "output"],
        "properties": {"name": STRING, "max_batch_size": NATURAL},
    },
    "Statistics": members("model_stats", model_stats=items(reference("ModelStatistics"))),
    "ModelStatistics": members(
        "name version inference_stats",
        name=STRING,
        version=STRING,
        last_inference=NATURAL,
        inference_count=NATURAL,
        execution_count=NATURAL,
        inference_stats={"type": "object", "additionalProperties": _DURATION},
        batch_stats=items({"type": "object"}),
    ),
    "Parameters": {
        "type": "object",
        "description": "sequence_id, sequence_start, sequence_end, priority and timeout (µs) are "
        "the server's; all others reach the model. Keys may not begin with triton_.",
        "propertyNames": {"not": {"pattern": "^triton_"}},
        "properties": {
            "sequence_id": {
                "anyOf": [STRING, {"type": "integer", "minimum": 0, "maximum": (1 << 64) - 1}]
            },
            "sequence_start": BOOLEAN,
            "sequence_end": BOOLEAN,
            "priority": {"type": "integer", "minimum": 0, "maximum": (1 << 64) - 1},
            "timeout": _INT64,
            "binary_data_output": BOOLEAN,
        },
        "additionalProperties": _SCALAR,
    },
    "InferRequest": members(
        "inputs",
        id=STRING,
        parameters=reference("Parameters"),
        inputs=items(reference("InputTensor")),
        outputs=items(reference("WantedOutput")),
    ),
    "InputTensor": members(
        "name datatype shape",
        name=STRING,
        datatype=_DATATYPE,
        shape=_SHAPE,
        data=_DATA,
        parameters=members(binary_data_size=NATURAL, **_MEMORY),
    ),
    "WantedOutput": members(
        "name",
        name=STRING,
        parameters=members(
            binary_data=BOOLEAN,
            classification={**NATURAL, "description": "The best so many classes, as text."},
            **_MEMORY,
        ),
    ),
    "InferResponse": members(
        "model_name model_version outputs",
        id=STRING,
        model_name=STRING,
        model_version=STRING,
        parameters={"type": "object", "additionalProperties": _SCALAR},
        outputs=items(reference("OutputTensor")),
    ),
    "OutputTensor": members(
        "name datatype shape",
        name=STRING,
        datatype=_DATATYPE,
        shape=_SHAPE,
        data=_DATA,
        parameters={"type": "object"},
    ),
    "GenerateRequest": {
        "type": "object",
        "description": "Keys that name an input become its tensor (a scalar or a flat list), all "
        "others parameters.",
        "properties": {"id": STRING, "parameters": {"type": "object"}},
        "additionalProperties": True,
    },
    "GenerateResponse": {
        "type": "object",
        "description": "Outputs and response parameters side by side; an output of one element "
        "is that element.",
        "required": ["model_name", "model_version"],
        "properties": {"id": STRING, "model_name": STRING, "model_version": STRING},
        "additionalProperties": True,
    },
    "FeedbackRequest": {
        "description": "One value, or a list of them in `values`.",
        "oneOf": [
            members("values", values={**items(reference("FeedbackValue")), "maxItems": 1000}),
            reference("FeedbackValue"),
        ],
    },
    "FeedbackValue": members(
        "metric value",
        metric={**STRING, "description": "One that the experiment has declared."},
        value={"type": ["boolean", "number"]},
        stamp={**STRING, "description": "What the response's x-modelyard-stamp brought."},
        unit={**STRING, "description": "Whom the request was for, instead of a stamp."},
        experiment={**STRING, "description": "Its name; every one of the model if not given."},
        id={**STRING, "description": "Tells several values of one unit apart."},
    ),
    "FeedbackTaken": members("accepted", accepted=NATURAL),
    "IndexRequest": members(ready={**BOOLEAN, "description": "Ready versions only."}),
    "Index": items(
        members(
            "name",
            name=STRING,
            version=STRING,
            state={
                "type": "string",
                "enum": ["UNKNOWN", "READY", "UNAVAILABLE", "LOADING", "UNLOADING"],
            },
            reason=STRING,
        )
    ),
    "LoadRequest": members(
        parameters={
            "type": "object",
            "description": "config: a ModelConfig as JSON text that replaces the model's own; "
            "file:<version>/<path>: base64 content of a file that replaces the folder's.",
            "additionalProperties": STRING,
        }
    ),
    "UnloadRequest": members(parameters=members(unload_dependents=BOOLEAN)),
    "RegionRequest": members("key byte_size", key=STRING, offset=NATURAL, byte_size=NATURAL),
    "CudaRegionRequest": members(
        "raw_handle device_id byte_size",
        raw_handle=members("b64", b64=STRING),
        device_id=NATURAL,
        byte_size=NATURAL,
    ),
    "Regions": items(
        members(
            "name",
            name=STRING,
            key=STRING,
            offset=NATURAL,
            byte_size=NATURAL,
            device_id=NATURAL,
        )
    ),
    "Settings": {
        "type": "object",
        "description": "Setting name → value. A POST changes those it names.",
        "additionalProperties": True,
    },
}
