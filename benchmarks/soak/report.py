"""A soak in words: what became of the requests, what grew, what was slow. Pure."""

from collections.abc import Iterator, Sequence

from benchmarks.soak.latency import merged, quantile_ms
from benchmarks.soak.outcome import OUTCOMES
from benchmarks.soak.rows import Run, totals
from benchmarks.soak.verdict import growth, problems, shown


def text(runs: Sequence[Run]) -> str:
    """Markdown: the requests of all runs together, then growth and verdict of each run."""
    minutes = [one for run in runs for one in run.minutes]
    lines = [
        f"| request | {' | '.join(OUTCOMES)} | p50 | p99 | longest |",
        f"|---|{'---:|' * (len(OUTCOMES) + 3)}",
    ]
    found = totals(minutes)
    for kind in (*sorted(found), "all"):
        counts = found.get(kind) or _sum(found.values())
        latency = merged(
            counted for one in minutes for it, counted in one.latency.items() if kind in (it, "all")
        )
        longest = max(
            (took for one in minutes for it, took in one.longest.items() if kind in (it, "all")),
            default=0.0,
        )
        cells = " | ".join(f"{counts.get(it, 0):,}" for it in OUTCOMES)
        lines.append(
            f"| {kind} | {cells} | {_ms(quantile_ms(latency, 0.5))} "
            f"| {_ms(quantile_ms(latency, 0.99))} | {_ms(longest * 1000)} |"
        )
    for run in runs:
        lines += ["", *_run(run)]
    return "\n".join(lines) + "\n"


def _run(run: Run) -> Iterator[str]:
    events = [one["kind"] for one in run.events if not one.get("failed")]
    kinds = ", ".join(f"{events.count(kind)} {kind}" for kind in sorted(set(events)))
    minutes = run.minutes[-1].at / 60 if run.minutes else 0.0
    yield f"Run of {run.start.get('time')}, {minutes:.0f} minutes. Changes: {kinds or 'none'}."
    yield ""
    yield "| what | of | second quarter | last quarter | flat |"
    yield "|---|---|---:|---:|---|"
    for one in growth(run.samples):
        before, after = shown(one)
        yield f"| {one.what} | {one.role} | {before} | {after} | {'yes' if one.is_flat else 'NO'} |"
    refusals = merged(one.refusals for one in run.minutes)
    for said, count in sorted(refusals.items(), key=lambda it: -it[1])[:20]:
        yield f"\nrefused {count}×: {said}"
    for row in run.slow[:40]:
        yield f"\nslow: {row}"
    for row in run.wrong[:40]:
        yield f"\nbad: {row}"
    found = problems(run)
    yield "\n" + ("Verdict: " + "; ".join(found) if found else "Verdict: as promised.")


def _sum(all_counts: object) -> dict[str, int]:
    return merged(all_counts)  # type: ignore[arg-type]


def _ms(milliseconds: float) -> str:
    return f"{milliseconds / 1000:.1f} s" if milliseconds >= 1000 else f"{milliseconds:.0f} ms"
