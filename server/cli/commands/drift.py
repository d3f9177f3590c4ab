"""`modelyard drift …`: watch the distributions of a model, choose a reference, see what drifted."""

import argparse
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from control.drift.profile import FILE, DriftProfile, read_profile, to_profile, write_profile
from control.drift.terms import DriftTerms
from control.drift.views import DriftReport, DriftWatchView, FeatureDriftView
from control.errors import Invalid
from server.cli.commands.client import ApiClient, path_of
from server.cli.commands.command import CliCommand, CommandFailed, argument, limited, whole
from server.cli.commands.output import Columns, ListOutput, MessageOutput, Shown

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_USUAL = DriftTerms()

_WATCHES: Columns = {
    "model": "model",
    "state": "state",
    "what was found": "words",
    "reference": lambda item: item.reference.words,
    "window": lambda item: _span(item.window),
}
_FEATURES: Columns = {
    "version": lambda item: item[0],
    "feature": lambda item: item[1].name,
    "role": lambda item: item[1].role,
    "state": lambda item: item[1].state,
    "psi": lambda item: _number(item[1].psi),
    "ks": lambda item: _number(item[1].ks),
    "p": lambda item: _number(item[1].p),
    "reference": lambda item: item[1].n_reference,
    "now": lambda item: item[1].n_current,
}


def list_drift(given: argparse.Namespace, api: ApiClient) -> Shown:
    return ListOutput(
        list(api.items("/drift", DriftWatchView, given.limit)),
        _WATCHES,
        "no model is watched; `modelyard drift watch MODEL` begins",
    )


def watch(given: argparse.Namespace, api: ApiClient) -> Shown:
    body = {
        "percent": given.percent,
        "per_second": given.per_second,
        "window": given.window,
        "psi": given.psi,
        "ks": given.ks,
        "alpha": given.alpha,
        "min_sample": given.min_sample,
        "labels": given.labels,
        "names": given.names,
    }
    made = api.call("PUT", path_of("drift", given.MODEL), DriftWatchView, body)
    return MessageOutput(f"drift of {made.model} is watched; {made.reference.words}", made)


def unwatch(given: argparse.Namespace, api: ApiClient) -> Shown:
    api.delete(path_of("drift", given.MODEL))
    return MessageOutput(f"drift of {given.MODEL} is not watched any more")


def show(given: argparse.Namespace, api: ApiClient) -> Shown:
    report = api.get(path_of("drift", given.MODEL), DriftReport)
    rows: list[tuple[int, FeatureDriftView]] = [
        (version.version, feature)
        for version in report.versions
        if given.version in (None, version.version)
        for feature in version.features
    ]
    return ListOutput(rows, _FEATURES, report.watch.words)


def refer(given: argparse.Namespace, api: ApiClient) -> Shown:
    body = _reference(given)
    path = path_of("drift", given.MODEL, "reference")
    made = api.call("PUT", path, DriftWatchView, body)
    return MessageOutput(f"{made.model} is compared with: {made.reference.words}", made)


def _reference(given: argparse.Namespace) -> dict[str, Any]:
    """Raises CommandFailed unless one kind is chosen."""
    chosen = [given.profile is not None, given.pushed, given.none, given.version is not None]
    if sum(chosen) != 1:
        raise CommandFailed("give one of --version, --profile, --pushed and --none")
    if given.profile is not None:
        return {"kind": "profile", "profile": _profile_in(Path(given.profile))}
    if given.version is None:
        return {"kind": "pushed" if given.pushed else "none"}
    since = given.since or _ago(3600)
    found = {"kind": "window", "version": given.version, "since": since}
    return found | ({"until": given.until} if given.until else {})


def _profile_in(path: Path) -> Any:
    """Raises CommandFailed for a file that is none, before a server is asked."""
    try:
        raw = path.read_bytes()
        read_profile(raw)
        return msgspec.json.decode(raw)
    except (OSError, Invalid) as error:
        raise CommandFailed(f"{path}: {error}") from error


def profile(given: argparse.Namespace, api: ApiClient) -> Shown:
    """Of a data set, without a server; of a stretch of time, by one."""
    if given.data:
        from server.cli.commands.drift_profile import profile_of_data  # numpy takes its time

        counts = profile_of_data(Path(given.data), given.labels, given.names)
        made = to_profile(counts, f"{Path(given.data).name}, {counts.requests} rows")
    elif given.MODEL and given.version is not None:
        path = path_of("drift", given.MODEL, "profile")
        made = api.get(
            path, DriftProfile, version=given.version, since=given.since, until=given.until
        )
    else:
        raise CommandFailed("give --data FILE, or a MODEL and its --version")
    out = Path(given.output)
    try:
        out.write_bytes(write_profile(made))
    except OSError as error:
        raise CommandFailed(f"{out} cannot be written: {error.strerror}") from error
    return MessageOutput(f"{out}: {len(made.features)} features, {made.comment}")


def _ago(seconds: int) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def _span(seconds: int) -> str:
    for unit, size in reversed(_UNITS.items()):
        if seconds % size == 0:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _decimal(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number") from None


def _seconds(text: str) -> int:
    found = re.fullmatch(r"([0-9]+)\s*([smhd]?)", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"'{text}' is not a duration, such as 90s, 30m, 1h or 1d")
    return int(found[1]) * _UNITS[found[2] or "s"]


def _usual(name: str, meaning: str, kind: Callable[[str], Any], usual: Any) -> Any:
    return argument(name, f"{meaning} [{usual}]", type=kind, default=usual)


_MODEL = argument("MODEL", "The model.")
_SINCE = argument("--since", "From this moment on, e.g. 2026-11-21T04:24:00Z. [an hour ago]")
_UNTIL = argument("--until", "Before this moment. [now]")
_NAMES = argument(
    "--names", "Keep the values of strings, rather than hashes of them.", action="store_true"
)

COMMANDS = (
    CliCommand("drift list", "list the models whose drift is watched", list_drift, (limited(),)),
    CliCommand(
        "drift watch",
        "watch the distributions of what a model gets and answers",
        watch,
        (
            _MODEL,
            _usual("--percent", "Share of its requests that are counted.", _decimal, 100.0),
            _usual("--per-second", "No more are counted a second.", _decimal, _USUAL.per_s),
            argument(
                "--window",
                "The last so much time is compared, such as 30m, 1h or 1d. [1h]",
                type=_seconds,
                default=_USUAL.window_s,
            ),
            _usual("--psi", "Above it a feature may have drifted.", _decimal, _USUAL.psi),
            _usual("--ks", "The same for the KS distance.", _decimal, _USUAL.ks),
            _usual("--alpha", "Largest p-value, corrected.", _decimal, _USUAL.alpha),
            _usual(
                "--min-sample", "Values without which nothing is said.", whole, _USUAL.min_sample
            ),
            argument(
                "--labels",
                'The output with labels or scores of classes; "-" for none. [found out]',
                default="",
            ),
            _NAMES,
        ),
    ),
    CliCommand("drift unwatch", "stop, and forget what was counted", unwatch, (_MODEL,)),
    CliCommand(
        "drift show",
        "show each feature of a watched model, the most drifted first",
        show,
        (_MODEL, argument("--version", "Of this version alone.", type=whole)),
    ),
    CliCommand(
        "drift reference",
        "choose what a model is compared with",
        refer,
        (
            _MODEL,
            argument("--version", "With what this version got in a stretch of time.", type=whole),
            _SINCE,
            _UNTIL,
            argument("--profile", f"With a file such as {FILE}."),
            argument("--pushed", f"With the {FILE} of each version.", action="store_true"),
            argument("--none", "With nothing.", action="store_true"),
        ),
    ),
    CliCommand(
        "drift profile",
        "write a profile: of a data set, or of what a version got in a stretch of time",
        profile,
        (
            argument("MODEL", "The model.", nargs="?"),
            argument("--version", "What this version got.", type=whole),
            _SINCE,
            _UNTIL,
            argument("--data", "A CSV file with a header, or a NumPy .npz file; needs no server."),
            argument("--labels", "The column or array that has the labels.", default=""),
            _NAMES,
            argument("--output", f"The file to write. [{FILE}]", short="-o", default=FILE),
        ),
    ),
)
