"""The table of REST's paths: one row per path and verb, rendered by `server.rest.openapi.build`.

A path in `server.rest.app` without a row here fails a test.
"""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

BodyType = str | type[msgspec.Struct] | tuple[type[msgspec.Struct], ...]

LANGUAGE = "Language models"
_MODEL = "/v2/models/{model}"
_INFER_ERRORS = (400, 404, 500, 501, 503)
_FOREIGN = "Refused: several repositories are served as one"


class RestOperation(NamedTuple):
    """One path and verb. `takes` and `gives`: the Struct of a body, or one of several, or the name
    of a schema; "" for no body. `events`: what the events of a stream hold.

    `errors`: HTTP statuses other than 200; those in `bare` have no body. `versioned`: the path
    also exists with `/versions/{version}` behind the model.
    """

    verb: str
    path: str
    tag: str
    summary: str
    gives: BodyType = ""
    takes: BodyType = ""
    errors: tuple[int, ...] = ()
    bare: tuple[int, ...] = ()
    versioned: bool = False
    required_body: bool = False
    events: type[msgspec.Struct] | None = None


OPERATIONS: tuple[RestOperation, ...] = (
    RestOperation(
        "POST",
        _MODEL + "/infer",
        "Inference",
        "Infer: tensors in, tensors out, as JSON or binary",
        "InferResponse",
        "InferRequest",
        _INFER_ERRORS,
        versioned=True,
        required_body=True,
    ),
    RestOperation(
        "POST",
        _MODEL + "/generate",
        "Inference",
        "Generate: a flat JSON object in, one out",
        "GenerateResponse",
        "GenerateRequest",
        _INFER_ERRORS,
        versioned=True,
        required_body=True,
    ),
    RestOperation(
        "POST",
        _MODEL + "/generate_stream",
        "Inference",
        "Generate, each response as a server-sent event when it is there",
        "event-stream",
        "GenerateRequest",
        _INFER_ERRORS,
        versioned=True,
        required_body=True,
    ),
    RestOperation(
        "POST",
        _MODEL + "/feedback",
        "Inference",
        "Tell experiments what came of answers: one value, or a list of up to 1000",
        "FeedbackTaken",
        "FeedbackRequest",
        (400, 501, 503),
        required_body=True,
    ),
    RestOperation("GET", "/v2/health/live", "Health", "Whether the server answers at all"),
    RestOperation(
        "GET",
        "/v2/health/ready",
        "Health",
        "Whether the server and, by default, every desired model is ready",
        bare=(400, 503),
    ),
    RestOperation(
        "GET",
        _MODEL + "/ready",
        "Health",
        "Whether the model (the version) is ready",
        errors=(400,),
        bare=(400,),
        versioned=True,
    ),
    RestOperation("GET", "/", "Server", "Name, version, where to go on", "Welcome"),
    RestOperation("GET", "/v2", "Server", "Name, version and extensions", "ServerMetadata"),
    RestOperation("GET", "/openapi.json", "Server", "This description, for machines", "document"),
    RestOperation("GET", "/docs", "Server", "This description, for people", "page"),
    RestOperation(
        "GET",
        _MODEL,
        "Models",
        "Inputs, outputs, platform and versions",
        "ModelMetadata",
        errors=(400, 404, 503),
        versioned=True,
    ),
    RestOperation(
        "GET",
        _MODEL + "/config",
        "Models",
        "The completed configuration",
        "ModelConfig",
        errors=(400, 404, 503),
        versioned=True,
    ),
    RestOperation(
        "GET",
        _MODEL + "/stats",
        "Models",
        "Counts and durations since the version was loaded",
        "Statistics",
        errors=(400,),
        versioned=True,
    ),
    RestOperation("GET", "/v2/models/stats", "Models", "Statistics of every version", "Statistics"),
    RestOperation(
        "POST",
        "/v2/repository/index",
        "Repository",
        "Every version known, its state and the reason",
        "Index",
        "IndexRequest",
        (400, 500),
    ),
    RestOperation(
        "POST",
        "/v2/repository/models/{model}/load",
        "Repository",
        "Load or reload (explicit control)",
        takes="LoadRequest",
        errors=(400, 500, 501, 503),
    ),
    RestOperation(
        "POST",
        "/v2/repository/models/{model}/unload",
        "Repository",
        "Unload (explicit control)",
        takes="UnloadRequest",
        errors=(400, 500, 503),
    ),
    *(
        RestOperation("POST", path, "Repository", _FOREIGN, errors=(501,))
        for path in (
            "/v2/repository/{repository}/index",
            "/v2/repository/{repository}/models/{model}/load",
            "/v2/repository/{repository}/models/{model}/unload",
        )
    ),
    *(
        operation
        for path, what in (
            ("/v2/trace/setting", "trace settings"),
            (_MODEL + "/trace/setting", "the model's trace settings"),
            ("/v2/logging", "logging settings"),
        )
        for operation in (
            RestOperation("GET", path, "Settings", f"Read {what}", "Settings", errors=(400, 404)),
            RestOperation(
                "POST",
                path,
                "Settings",
                f"Change {what}",
                "Settings",
                "Settings",
                (400, 404, 500, 501),
            ),
        )
    ),
    *(
        operation
        for kind, takes in (("system", "RegionRequest"), ("cuda", "CudaRegionRequest"))
        for region in ("", "/region/{region}")
        for operation in (
            RestOperation(
                "GET",
                f"/v2/{kind}sharedmemory{region}/status",
                "Shared memory",
                f"The registered {kind} regions",
                "Regions",
                errors=(400, 404, 501),
            ),
            RestOperation(
                "POST",
                f"/v2/{kind}sharedmemory{region}/register",
                "Shared memory",
                f"Register a {kind} region",
                takes=takes,
                errors=(400, 404, 500, 501),
                required_body=True,
            ),
            RestOperation(
                "POST",
                f"/v2/{kind}sharedmemory{region}/unregister",
                "Shared memory",
                f"Unregister {'the' if region else 'every'} {kind} region",
                errors=(400, 404, 501),
            ),
        )
    ),
)


def each_path() -> Iterator[tuple[str, RestOperation]]:
    """Every path with its operation, versioned paths twice."""
    for operation in OPERATIONS:
        yield operation.path, operation
        if operation.versioned:
            yield operation.path.replace(_MODEL, _MODEL + "/versions/{version}", 1), operation
