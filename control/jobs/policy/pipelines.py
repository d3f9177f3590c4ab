"""How a pipeline stands by the job of its step. Pure.

running ──▶ done                        every step is done
  ▲ │
  │ └─────▶ failed | cancelled          as the job of a step was, or the step could not be taken
  └────────┘                            that job is tried again
"""

from enum import StrEnum

from control.jobs.policy.states import JobState


class PipelineState(StrEnum):
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


_BY_JOB = {
    JobState.FAILED: PipelineState.FAILED,
    JobState.CANCELLED: PipelineState.CANCELLED,
}


def state_after(job: JobState, step: int, steps: int) -> PipelineState:
    """The state of a pipeline of `steps` whose `step`, from 1, is a job in the state `job`. A job
    that is done before the last step leaves it running: its next step is to be taken."""
    if job is JobState.DONE and step >= steps:
        return PipelineState.DONE
    return _BY_JOB.get(job, PipelineState.RUNNING)
