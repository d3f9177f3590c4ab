"""What gateways count of their routes, over the link, and what rollouts are told of it."""

import asyncio
import time
from pathlib import Path
from typing import Any

from control.gateways.arm_reports import LatestArmReports
from control.gateways.link import LinkServer
from control.gateways.messages import ArmReport, ArmReports, LoadReport
from control.gateways.queries import Query, QueryAnswer
from control.rollouts.arms import ArmTotals, OutcomeCounts
from control.rollouts.assignment_counts import AssignmentCount
from schedulers.reply import Reply
from schedulers.request import InferResponse
from server.desired.link import ControlLink
from server.routing.arm_counters_registry import ArmCountersRegistry as Counting
from server.routing.table import compile_table, targets_of
from support.routing import halves


def row(
    arm: str, requests: int, rollout: str = "r1", copies: bool = False, workers: Any = (0, 0)
) -> ArmReport:
    counted = ArmTotals(OutcomeCounts(requests, 1))
    return ArmReport("numbers", rollout, arm, "digits", 1, copies, 2, *workers, counted)


def told(
    boot: str, *rows: ArmReport, assignments: dict[str, tuple[AssignmentCount, ...]] | None = None
) -> ArmReports:
    return ArmReports("one", boot, rows, assignments)


def test_a_rollout_is_told_of_all_its_arms_when_one_has_news() -> None:
    latest = LatestArmReports()
    first = told("b1", row("stable", 10), row("candidate", 5), row("candidate", 3, copies=True))
    report = latest.update(first)["r1"]
    counted = [arm.counts.requests for arm in (report.arms.control, report.arms.candidate)]
    assert (counted, report.arms.mirrored.counts.requests) == ([10, 5], 3)
    assert report.in_flight == 4
    later = latest.update(told("b1", row("stable", 12), row("stable", 9, rollout="")))
    assert list(later) == ["r1"]
    assert later["r1"].arms.control.counts.requests == 12
    assert later["r1"].arms.candidate.counts.requests == 5


def test_a_gateway_that_was_restarted_begins_at_nothing() -> None:
    latest = LatestArmReports()
    latest.update(told("b1", row("stable", 10), row("candidate", 5)))
    report = latest.update(told("b2", row("stable", 1)))["r1"]
    assert report.arms.control.counts.requests == 1
    assert report.arms.candidate.counts.requests == 0


def test_the_candidate_s_workers_are_told_of_once_however_many_rows_it_has() -> None:
    rows = [
        row("stable", 1, workers=(7, 900)),
        row("candidate", 1, workers=(2, 300)),
        row("candidate", 1, copies=True, workers=(2, 300)),
    ]
    report = LatestArmReports().update(told("b1", *rows))["r1"]
    assert (report.crashes, report.resident_bytes) == (2, 300)


def test_how_units_were_shared_out_stays_known_until_it_is_told_anew() -> None:
    latest = LatestArmReports()
    assignments = {
        "r1": (AssignmentCount("salt", 100, 40, 3), AssignmentCount("salt", 500, 20, 1)),
        "r2": (AssignmentCount("salt", 100, 1, 0),),
    }
    first = latest.update(told("b1", row("candidate", 1), assignments=assignments))["r1"]
    assert first.assignments == (
        AssignmentCount("salt", 100, 40, 3),
        AssignmentCount("salt", 500, 20, 1),
    )
    assert latest.update(told("b1", row("candidate", 2)))["r1"].assignments == first.assignments
    assert latest.update(told("b1", row("candidate", 2), assignments={}))["r1"].assignments == ()


def test_counters_cross_the_link_at_once_and_again_when_they_grow(tmp_path: Path) -> None:
    async def main() -> None:
        heard: asyncio.Queue[ArmReports] = asyncio.Queue()
        server = LinkServer(tmp_path / "link.sock", _ignore, heard.put)
        await server.open()
        link = ControlLink(
            tmp_path / "link.sock", "one", lambda _: None, _nothing, frames, _no_answer
        )
        holding = asyncio.create_task(link.run())
        async with asyncio.timeout(60):
            first = await heard.get()
            assert [one.outcomes.counts.requests for one in first.arms] == [0, 0]
            reply = Reply()
            counting.of(targets[1]).follow(reply, time.monotonic_ns())
            reply.send(InferResponse("", "digits", 2, {}))
            (news,) = (await heard.get()).arms
        assert (news.arm, news.outcomes.counts.requests) == ("candidate", 1)
        holding.cancel()
        await asyncio.gather(holding, return_exceptions=True)
        await server.close()

    def frames(server: str, everything: bool) -> Any:
        for arms in counting.snapshot(everything):
            yield ArmReports(server, counting.boot, arms)

    counting = Counting()
    targets = targets_of(compile_table([halves(rollout="r1")], {}))
    counting.use(targets)
    asyncio.run(main())


async def _ignore(told: LoadReport) -> None: ...


def _nothing() -> LoadReport:
    return LoadReport("one", 0, True, (), frozenset())


def _no_answer(_query: Query) -> QueryAnswer:
    raise AssertionError("nobody asks")
