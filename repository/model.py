"""What exists: models, their versions, and one frozen look at all of them.

`ModelConfig` is Triton's protobuf, as `tritonclient` ships it; by convention nobody changes one
after it was handed over (make a copy with `CopyFrom`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tritonclient.grpc.model_config_pb2 import ModelConfig

__all__ = ["ModelConfig", "ModelFolder", "ModelVersion", "PinnedVersion", "Snapshot"]


@dataclass(frozen=True, slots=True)
class ModelVersion:
    """One numbered version of a model, as files.

    `folder` is the model's folder, `path` the version's own (`folder/<number>`). `config` is the
    config as written, or completed once `server.fleet.checks.check` has seen the artefact. `digest`
    changes when, and only when, a file below `path` changes. `network_allowed`: whether an
    administrator lets it open connections, if it is not from the operator's own folders.
    """

    name: str
    number: int
    folder: Path
    path: Path
    config: ModelConfig
    digest: str
    network_allowed: bool = False


@dataclass(frozen=True, slots=True)
class PinnedVersion:
    """A version something refers to, kept loaded whatever the version policy says.

    It may lie in another folder than the model's, under another config: hence its own digests.
    `by` names who refers, e.g. "alias champion".
    """

    version: ModelVersion
    core_digest: str
    instances_digest: str
    by: str


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """One model as it stands in a repository.

    `config` is as written (empty but for `name` when there is no config.pbtxt). `versions` are
    all that exist, ascending; which of them to serve is `config.version_policy`'s business
    (`repository.policy.select`). Three digests tell what a change means: `core_digest` covers
    the config without `instance_group` and `version_policy`, plus the model's side files
    (labels, warmup data): another one means "reload". `instances_digest` covers `instance_group`
    alone: another one means "resize in place". Each version has its own `digest`.

    `pins` are wanted besides what the policy selects; with `only_pinned` nothing else is.
    """

    name: str
    repository: Path
    folder: Path
    config: ModelConfig
    versions: tuple[ModelVersion, ...]
    core_digest: str
    instances_digest: str
    pins: tuple[PinnedVersion, ...] = ()
    only_pinned: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One consistent look at every repository.

    `problems` maps a model's name to the reason it cannot be served; a name is in `models` or in
    `problems`, never in both. A bad model is a reason here, never an exception. The names in
    `delivered` came by git: they are wanted in every control mode. `desired` is the revision of
    the desired state that was merged in, 0 for none. `strays`: of the problems, those of files in
    a repository's root; nobody is kept from serving by them.
    """

    revision: int
    models: Mapping[str, ModelFolder]
    problems: Mapping[str, str]
    delivered: frozenset[str] = frozenset()
    desired: int = 0
    strays: frozenset[str] = frozenset()
