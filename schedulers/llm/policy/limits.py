"""How much the language scheduler takes on at once. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """Raises ValueError when the bounds contradict each other.

    `step_tokens`: tokens one forward pass computes, of decoding and of prompts together. `step_s`:
    how long a pass that decodes is to take, as far as fewer prompt tokens make it shorter.
    `running`: sequences that hold blocks. `waiting`, `waiting_tokens`: requests, and their tokens,
    that may wait. `context`: tokens of one sequence, its answer included. `watermark_blocks`: free
    blocks an admission leaves for those already running.
    """

    step_tokens: int = 256
    running: int = 64
    waiting: int = 512
    waiting_tokens: int = 1 << 18
    context: int = 4096
    watermark_blocks: int = 4
    step_s: float = float("inf")

    def __post_init__(self) -> None:
        for name in ("step_tokens", "running", "waiting", "waiting_tokens", "context"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if not self.step_s > 0:
            raise ValueError(f"step_s is {self.step_s}; it must be above 0")
        if self.watermark_blocks < 0:
            raise ValueError(f"watermark_blocks is {self.watermark_blocks}; it must be at least 0")
        if self.running > self.step_tokens:
            raise ValueError(
                f"running is {self.running}, but a step computes only step_tokens = "
                f"{self.step_tokens}; every running sequence needs one token a step"
            )
