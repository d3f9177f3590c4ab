"""When the tokens of a language model's answers came, counted as they go by."""

from schedulers.counters import Counters, ResponseStatistics, TokenCounters
from schedulers.llm.gateway.llm_reply import LLMReply
from schedulers.llm.generation import GenerationOutput

MOST_POSITIONS = 1000
"""Responses of one answer that are counted apart; those behind count with the last of these."""


class TokenTimes:
    """Writes one version's counters; on the loop's thread."""

    def __init__(self, counters: Counters) -> None:
        # A version that is loaded on demand goes on counting with each load.
        self.counters = counters.tokens = counters.tokens or TokenCounters()
        self._responses = counters.responses

    def start(self, ticket: LLMReply) -> None:
        """Its prompt is computed for the first time."""
        self.counters.queue.add(ticket.started_ns - ticket.request.arrived_ns)

    def add_token(
        self, ticket: LLMReply, index: int, output: GenerationOutput, now_ns: int
    ) -> None:
        """An answer has one more token, if the output has one."""
        if output.token is None:
            return
        before_ns = ticket.before_ns.get(index)
        if before_ns is None:
            self.counters.first_token.add(now_ns - ticket.request.arrived_ns)
            self.counters.first_token_samples.add(now_ns - ticket.request.arrived_ns)
        else:
            self.counters.between_tokens.add(now_ns - before_ns)
            self.counters.between_tokens_samples.add(now_ns - before_ns)
        ticket.before_ns[index] = now_ns

    def add_response(self, ticket: LLMReply, before_ns: int, now_ns: int) -> None:
        """A response went out; `before_ns`: when the one before it did, or its start."""
        position = min(ticket.position, MOST_POSITIONS - 1)
        counts = self._responses.get(position)
        if counts is None:
            counts = self._responses[position] = ResponseStatistics()
        taken_ns = max(0, now_ns - before_ns)
        counts.infer += 1
        counts.infer_ns += taken_ns
        counts.output += 1
        counts.success += 1
        counts.success_ns += taken_ns
        ticket.position += 1
