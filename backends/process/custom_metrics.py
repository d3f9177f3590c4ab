"""What a metric of a model's own may look like, for both sides of a worker's connection. Pure.

Source of kinds and names: Triton's `python_backend` and Prometheus' data model.
"""

import re
from itertools import pairwise

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"
KINDS = (COUNTER, GAUGE, HISTOGRAM)

MOST_FAMILIES = 100
"""Of one model's instance."""
MOST_SERIES = 1000
"""Of one instance, over all its families."""
MOST_LABEL_BYTES = 1024
"""Names and values of one series' labels together."""
MOST_LABELS = 32
MOST_BUCKETS = 100
MOST_DESCRIPTION_CHARACTERS = 1024
MOST_NAME_CHARACTERS = 200

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")
_OURS = ("nv_", "modelyard_", "process_")


def family_fault(name: str, description: str, kind: str) -> str:
    """Why there can be no such family, "" if there can."""
    if len(name) > MOST_NAME_CHARACTERS or not _NAME.fullmatch(name):
        return (
            f"'{name[:MOST_NAME_CHARACTERS]}' is no name of a metric: letters, digits, '_' and ':' "
            f"are, at most {MOST_NAME_CHARACTERS}, and no digit first"
        )
    if name.startswith(_OURS):
        return f"names of metrics that begin with {', '.join(_OURS)} are the server's: '{name}'"
    if kind not in KINDS:
        return f"metric family '{name}' is of the unknown kind '{kind}'"
    if len(description) > MOST_DESCRIPTION_CHARACTERS:
        return (
            f"metric family '{name}': its description has {len(description)} characters of at most "
            f"{MOST_DESCRIPTION_CHARACTERS}"
        )
    return ""


def labels_fault(labels: tuple[tuple[str, str], ...]) -> str:
    """Why no series can have these labels, "" if one can."""
    size = sum(len(name) + len(value.encode(errors="replace")) for name, value in labels)
    if len(labels) > MOST_LABELS or size > MOST_LABEL_BYTES:
        return (
            f"{len(labels)} labels of {size} bytes; at most {MOST_LABELS} of {MOST_LABEL_BYTES} "
            "bytes together are taken"
        )
    wrong = next((name for name, _ in labels if not _LABEL.fullmatch(name)), None)
    if wrong is not None:
        return f"'{wrong}' is no name of a label: letters, digits and '_' are, and no '__' first"
    twice = next((low for (low, _), (high, _) in pairwise(sorted(labels)) if low == high), None)
    if twice is not None:
        return f"the label '{twice}' is there twice"
    return ""


def buckets_fault(bounds: tuple[float, ...]) -> str:
    """Why a histogram cannot have these upper bounds, "" if it can."""
    if not 0 < len(bounds) <= MOST_BUCKETS:
        return f"a histogram needs 1 to {MOST_BUCKETS} buckets, not {len(bounds)}"
    if any(not low < high for low, high in pairwise(bounds)):
        return "the buckets of a histogram must ascend"
    if any(bound != bound or bound in (float("inf"), float("-inf")) for bound in bounds):
        return "the buckets of a histogram must be finite; the last one, +Inf, is there by itself"
    return ""
