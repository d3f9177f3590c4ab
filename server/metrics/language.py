"""Metrics of language models: tokens, how soon they came, and what the cache holds."""

from collections.abc import Callable, Iterator, Sequence

from schedulers.counters import BucketCounts, Counters, TokenCounters
from server.metrics.histogram_lines import histogram_lines
from server.metrics.metric_family import MetricFamily, head

_FIGURES: tuple[tuple[MetricFamily, Callable[[TokenCounters], int]], ...] = (
    (
        MetricFamily("modelyard_llm_prompt_tokens", "counter", "Prompt tokens computed"),
        lambda tokens: tokens.prompt_tokens,
    ),
    (
        MetricFamily("modelyard_llm_generated_tokens", "counter", "Tokens generated"),
        lambda tokens: tokens.generated_tokens,
    ),
    (
        MetricFamily(
            "modelyard_llm_prefix_hit_tokens",
            "counter",
            "Prompt tokens that came from the prefix cache",
        ),
        lambda tokens: tokens.prefix_hit_tokens,
    ),
    (
        MetricFamily(
            "modelyard_llm_preemptions",
            "counter",
            "Sequences preempted: their blocks were freed and they are recomputed",
        ),
        lambda tokens: tokens.preemptions,
    ),
    (
        MetricFamily(
            "modelyard_llm_replayed_requests",
            "counter",
            "Requests replayed because an engine died before the first token was sent",
        ),
        lambda tokens: tokens.replayed,
    ),
    (
        MetricFamily("modelyard_llm_running", "gauge", "Sequences running, which hold blocks"),
        lambda tokens: tokens.running,
    ),
    (
        MetricFamily("modelyard_llm_waiting", "gauge", "Sequences waiting for blocks or a slot"),
        lambda tokens: tokens.waiting,
    ),
    (
        MetricFamily("modelyard_llm_waiting_tokens", "gauge", "Prompt tokens waiting"),
        lambda tokens: tokens.waiting_tokens,
    ),
    (
        MetricFamily("modelyard_llm_blocks_in_use", "gauge", "Cache blocks in use by sequences"),
        lambda tokens: tokens.blocks_in_use,
    ),
    (
        MetricFamily(
            "modelyard_llm_blocks_cached",
            "gauge",
            "Cache blocks not in use whose content can still be reused",
        ),
        lambda tokens: tokens.blocks_cached,
    ),
    (
        MetricFamily("modelyard_llm_blocks_empty", "gauge", "Cache blocks that are empty"),
        lambda tokens: tokens.blocks_empty,
    ),
)

_HISTOGRAMS: tuple[tuple[MetricFamily, Callable[[TokenCounters], BucketCounts]], ...] = (
    (
        MetricFamily(
            "modelyard_llm_time_to_first_token_seconds",
            "histogram",
            "Time from a request's arrival to the first token of an answer, in seconds",
        ),
        lambda tokens: tokens.first_token,
    ),
    (
        MetricFamily(
            "modelyard_llm_inter_token_seconds",
            "histogram",
            "Time from one token of an answer to the next, in seconds",
        ),
        lambda tokens: tokens.between_tokens,
    ),
    (
        MetricFamily(
            "modelyard_llm_queue_seconds",
            "histogram",
            "Time from a request's arrival until its prompt was first computed, in seconds",
        ),
        lambda tokens: tokens.queue,
    ),
)

OF_LANGUAGE: tuple[MetricFamily, ...] = (
    *(metric for metric, _ in _FIGURES),
    *(metric for metric, _ in _HISTOGRAMS),
)


def of_language(counters: Sequence[tuple[str, Counters]]) -> Iterator[str]:
    """The lines of these metrics, for the versions that count tokens; by their labels."""
    counted = [(label, one.tokens) for label, one in counters if one.tokens is not None]
    for metric, of_tokens in _FIGURES:
        yield from head(metric)
        yield from (f"{metric.name}{{{label}}} {of_tokens(tokens)}" for label, tokens in counted)
    for metric, histogram in _HISTOGRAMS:
        yield from head(metric)
        for label, tokens in counted:
            yield from histogram_lines(metric.name, label, histogram(tokens))
