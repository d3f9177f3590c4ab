"""One complaint about a model repository: where, which rule, what would be accepted.

Codes are stable: E1xx are about a config, E2xx about the folder around it, E3xx about the
artefacts in it. docs/findings.md tells the owner of a model what to do about each.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

CODES: dict[str, str] = {
    "E100": "the config file cannot be read as text",
    "E101": "not valid protobuf text format",
    "E102": "unknown field",
    "E103": "number out of its range",
    "E104": "unknown enum value",
    "E105": "value of the wrong type",
    "E106": "field given twice, or two fields of which only one may be given",
    "E110": "name differs from the model's folder",
    "E112": "tensor without a name, or two with the same one",
    "E113": "data type missing",
    "E114": "dims missing or out of range",
    "E115": "reshape does not hold as many elements as dims",
    "E116": "format does not fit dims",
    "E117": "file name leads out of the model's folder",
    "E118": "flag that only TensorRT has",
    "E120": "dynamic batching on a model without a batch dimension",
    "E121": "preferred batch size out of range",
    "E122": "priority out of range",
    "E123": "preserve_ordering contradicts another setting",
    "E125": "response cache cannot work with this model",
    "E130": "instance group contradicts itself",
    "E131": "version policy selects nothing",
    "E140": "ensemble contradicts itself",
    "E150": "not offered by this server yet",
    "E151": "no backend",
    "E152": "no input or no output",
    "E160": "warmup sample contradicts the model",
    "E200": "folder cannot be read",
    "E201": "no version folder",
    "E202": "the version policy selects no version",
    "E203": "a file the config names is missing",
    "E204": "folder is not a model",
    "E205": "the same name in two repositories",
    "E206": "link leads out of the repository",
    "E207": "too many files in one model",
    "E208": "folder looks like a version and is ignored",
    "E209": "version folder is empty",
    "E300": "the artefact cannot be read, or contradicts its config",
}
"""What each code means, in a few words; a test holds docs/findings.md against this table."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One complaint. `line` and `column` count from 1; 0 when there is no text to point at."""

    path: Path
    line: int
    column: int
    code: str
    message: str

    def __str__(self) -> str:
        path = readable(str(self.path))
        place = f"{path}:{self.line}:{self.column}" if self.line else path
        return f"{place} {self.code} {self.message}"


def readable(name: str) -> str:
    """A file's name as text that any wire can carry, were its bytes not UTF-8."""
    return name.encode(errors="surrogateescape").decode(errors="replace")


def reason(findings: Iterable[Finding]) -> str:
    """All findings as the one line that the repository index and the log show."""
    return "; ".join(map(str, findings))
