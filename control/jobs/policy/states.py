"""The life of a job, as a table: which state may follow which. Pure.

queued ──▶ running ──▶ publishing ──▶ done
  │ ▲         │ │           └───────▶ failed | cancelled
  │ └─────────┘ └──▶ done | failed | cancelled
  └──▶ failed | cancelled              failed | cancelled ──▶ queued, where somebody says retry
"""

from enum import StrEnum


class JobState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"  # a worker has claimed it
    PUBLISHING = "publishing"  # the work is done; its output becomes a version
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


_ENDS = frozenset({JobState.DONE, JobState.FAILED, JobState.CANCELLED})
_AGAIN = frozenset({JobState.QUEUED})

NEXT: dict[JobState, frozenset[JobState]] = {
    JobState.QUEUED: frozenset({JobState.RUNNING, JobState.FAILED, JobState.CANCELLED}),
    JobState.RUNNING: _ENDS | {JobState.QUEUED, JobState.PUBLISHING},
    JobState.PUBLISHING: _ENDS,
    JobState.DONE: frozenset(),
    JobState.FAILED: _AGAIN,
    JobState.CANCELLED: _AGAIN,
}

ENDS = tuple(state for state in JobState if state in _ENDS)
UNFINISHED = tuple(state for state in JobState if state not in _ENDS)


def may_follow(state: JobState, after: JobState) -> bool:
    return state in NEXT[after]
