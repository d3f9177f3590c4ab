"""`python -m benchmarks`: measures this server, its peers and the bare limits, in one table.

`python -m benchmarks llm` is `benchmarks.llm`: language models; `python -m benchmarks against REV`
is `benchmarks.against`: this tree beside another revision; `python -m benchmarks jobs` is
`benchmarks.jobs`: what conversion and quantisation do to networks. These have options of their own.
"""

import argparse
import json
import signal
import sys
from pathlib import Path
from types import FrameType

from benchmarks import models
from benchmarks.arguments import names
from benchmarks.load import NoLoadGenerator, load_generator
from benchmarks.process import PeerFailed
from benchmarks.report import Report, as_json, markdown
from benchmarks.rounds import Plan
from benchmarks.scenarios import (
    beside_images,
    cnn,
    crowds,
    ensembles,
    footprint,
    identity,
    idle,
    isolation,
    mlp,
    payloads,
    routing,
    scripts,
    sequences,
)
from benchmarks.shots import WrongAnswer
from benchmarks.targets import checks

SCENARIOS = {
    "identity": identity.measure,
    "beside-images": beside_images.measure,
    "cnn": cnn.measure,
    "mlp": mlp.measure,
    "payloads": payloads.measure,
    "crowds": crowds.measure,
    "footprint": footprint.measure,
    "routing": routing.measure,
    "ensembles": ensembles.measure,
    "scripts": scripts.measure,
    "sequences": sequences.measure,
    "isolation": isolation.measure,
    "idle": idle.measure,
}
PEERS = ("modelyard", "mlserver", "triton", "asgi", "grpcio")


def main() -> int:
    """Run the scenarios asked for; 1 if a peer failed or answered wrongly, 2 without h2load."""
    signal.signal(signal.SIGTERM, _leave)
    if sys.argv[1:2] == ["llm"]:
        from benchmarks import llm  # what it needs is an extra

        return llm.main(sys.argv[2:])
    if sys.argv[1:2] == ["jobs"]:
        from benchmarks.jobs import command  # what it needs is an extra

        return command.main(sys.argv[2:])
    if sys.argv[1:2] in (["against"], ["--against"]):
        return _against(sys.argv[2:])
    arguments = _parser().parse_args()
    try:
        load_generator()
    except NoLoadGenerator as reason:
        print(reason, file=sys.stderr)
        return 2
    report = _measure(_plan(arguments), arguments.only)
    found = checks(report)
    text = markdown(report, found)
    print(text)
    if arguments.markdown:
        arguments.markdown.write_text(text)
    if arguments.json:
        arguments.json.write_text(json.dumps(as_json(report, found), indent=1))
    return 1 if report.failures else 0


def _against(words: list[str]) -> int:
    from benchmarks.against import command  # what it needs is an extra

    try:
        return command.main(words)
    except (NoLoadGenerator, PeerFailed, WrongAnswer) as reason:
        print(reason, file=sys.stderr)
        return 1


def _measure(plan: Plan, scenarios: list[str]) -> Report:
    """A scenario that fails is reported and does not keep the others from being measured."""
    models.ensure(plan.cache / "models")
    report = Report()
    for name in scenarios:
        try:
            SCENARIOS[name](plan, report)
        except (PeerFailed, WrongAnswer) as failure:
            report.failures.append(f"{name}: {failure}")
    return report


def _plan(arguments: argparse.Namespace) -> Plan:
    quick = arguments.quick
    return Plan(
        rounds=arguments.rounds or (1 if quick else 3),
        duration_s=arguments.duration or (1.0 if quick else 3.0),
        concurrencies=(8, 32) if quick else (1, 8, 32, 128),
        image_concurrencies=(8, 32) if quick else (1, 8, 32),
        cache=arguments.cache,
        without=frozenset(arguments.without),
        triton=arguments.triton,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    add = parser.add_argument
    add("--quick", action="store_true", help="one short round at concurrency 8 and 32")
    add("--only", type=names(SCENARIOS), default=list(SCENARIOS), metavar="NAME,…",
        help=f"scenarios to run: {', '.join(SCENARIOS)} (default: all)")  # fmt: skip
    add("--without", type=names(PEERS), default=[], metavar="NAME,…",
        help=f"peers to leave out: {', '.join(PEERS)}")  # fmt: skip
    add("--rounds", type=int, metavar="N", help="interleaved rounds to take medians of (3)")
    add("--duration", type=float, metavar="S", help="seconds per measurement (3)")
    add("--json", type=Path, metavar="FILE", help="write the results as data, too")
    add("--markdown", type=Path, metavar="FILE", help="write the tables, too")
    add("--triton", type=Path, metavar="PATH",
        help="a tritonserver with its backends, to measure it beside")  # fmt: skip
    add("--cache", type=Path, default=Path(".cache"), metavar="DIR",
        help="where models, logs and MLServer's environment are kept (.cache)")  # fmt: skip
    return parser


def _leave(number: int, _: FrameType | None) -> None:
    """Let SIGTERM unwind as an exception would, so that every peer is stopped."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
