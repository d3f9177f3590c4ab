"""One complaint about a model repository: where, which rule, what would be accepted.

Codes are stable: E1xx are about a config, E2xx about the folder around it, E3xx about the
artefacts in it, E4xx about a push. docs/findings.md tells the owner of a model what to do about
each.
"""

from collections.abc import Iterable, Sequence
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
    "E107": "more mistakes than are shown",
    "E110": "name differs from the model's folder",
    "E112": "tensor without a name, or two with the same one",
    "E113": "data type missing",
    "E114": "dims missing or out of range",
    "E115": "reshape does not hold as many elements as dims",
    "E116": "format does not fit dims",
    "E117": "file name leads out of the model's folder",
    "E118": "flag that only TensorRT has",
    "E119": "name of a hidden file",
    "E120": "dynamic batching on a model without a batch dimension",
    "E121": "preferred batch size out of range",
    "E122": "priority out of range",
    "E123": "preserve_ordering contradicts another setting",
    "E124": "ragged batches contradict the rest of the config",
    "E125": "response cache cannot work with this model",
    "E126": "control input of sequences contradicts itself",
    "E127": "state of sequences contradicts itself",
    "E128": "number of a sequence strategy out of its range",
    "E129": "sequences cannot work with this model",
    "E130": "instance group contradicts itself",
    "E131": "version policy selects nothing",
    "E140": "ensemble contradicts itself",
    "E141": "an ensemble's steps do not make a graph",
    "E142": "an ensemble's step does not fit its model",
    "E143": "condition or map of an ensemble that cannot be followed",
    "E150": "not offered by this server yet",
    "E151": "no backend",
    "E152": "no input or no output",
    "E155": "a field or parameter without an effect (a note)",
    "E160": "warmup sample contradicts the model",
    "E161": "a parameter of a built-in step cannot be followed",
    "E162": "request_body names no input that a body can be",
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
    "E210": "neither a plain file nor a folder",
    "E211": "a model's file outside of any model's folder",
    "E300": "the artefact cannot be read, or contradicts its config",
    "E301": "a python model that cannot be imported",
    "E302": "a drift profile that cannot be used",
    "E303": "requirements that are not taken",
    "E400": "symbolic link in a push",
    "E401": "submodule in a push",
    "E402": "path leads out of its folder",
    "E403": "name means .git on some file system",
    "E404": "name cannot be shown",
    "E405": "name or path too long",
    "E406": "names that differ only in case",
    "E407": "name ends in a dot or space",
    "E408": "file of a kind that cannot be pushed",
    "E409": "hidden entry of a model",
    "E410": "file too large for git",
    "E411": "tree too large",
    "E412": "too many files in a push",
    "E413": "the push takes more disk space than it may",
    "E414": "object that git's own check refuses",
    "E415": "push damaged or incomplete",
    "E416": "push from a shallow clone",
    "E417": "the server has no disk space for the push",
    "E420": "ref that cannot be pushed",
    "E421": "deletes a protected ref",
    "E422": "rewrites a protected ref",
    "E423": "too many refs in one push",
    "E424": "the pusher may not push to this ref",
    "E430": "Git LFS object missing",
    "E431": "Git LFS pointer wrong",
    "E440": "format not allowed in this repository",
    "E450": "new bytes under an existing version",
    "E451": "the model belongs elsewhere",
    "E452": "name that no model can have",
    "E453": "removes a model that is referred to",
    "E454": "too many models in one commit",
    "E455": "lets its users use a model that its publisher may not",
    "E460": "signature missing or wrong",
    "E470": "rollout parameter that cannot be followed",
    "E471": "rollout that may go on without comparing latencies (a note)",
    "E472": "jobs.json that cannot be followed",
    "E473": "steps of jobs.json that the repository or the pusher may not have taken",
}
"""What each code means, in a few words; a test holds docs/findings.md against this table."""

NOTES = frozenset({"E155", "E471"})
"""Codes that refuse nothing: they tell the owner of a model what will not be as they may expect."""

MOST_FINDINGS = 100
"""Of one config. A megabyte can hold a quarter of a million mistakes, and nobody reads so many."""


MOST_SHOWN = 50
"""What one reader is told at once; more help nobody."""


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


def counted(count: int, noun: str) -> str:
    """ "no findings", "1 note", "2 findings"."""
    return f"{count or 'no'} {noun}{'' if count == 1 else 's'}"


def readable(name: str) -> str:
    """A file's name as text that any wire can carry, were its bytes not UTF-8."""
    return name.encode(errors="surrogateescape").decode(errors="replace")


def lines(findings: Sequence[Finding]) -> list[str]:
    """The first `MOST_SHOWN` findings as lines; where there are more, the last one says so."""
    shown = [str(finding) for finding in findings[:MOST_SHOWN]]
    more = len(findings) - len(shown)
    return [*shown, f"… and {more} more"] if more else shown


def reason(findings: Iterable[Finding]) -> str:
    """Findings as the one line that the repository index and the log show."""
    return "; ".join(lines(list(findings)))
