"""What a snapshot is made of: as the store sealed it, and as rows take it over. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class SealedVersion:
    """One version folder. `digest`: sha256 over its files, in hex; sizes in bytes.

    `checks`: what was looked at and found, JSON-able. `signer`: who signed it, "" for nobody.
    """

    digest: str
    size_bytes: int
    files: int
    checks: Mapping[str, Any] = field(default_factory=dict)
    signer: str = ""


@dataclass(frozen=True, slots=True)
class SealedModel:
    """One model's snapshot in the store. `digest` names it there."""

    model: str
    digest: str
    size_bytes: int
    files: int
    versions: Mapping[int, SealedVersion]
