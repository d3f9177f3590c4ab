"""Statistics: counters in, Triton's figures out."""

import asyncio

from schedulers.counters import BatchStatistics, ResponseStatistics
from server.describe import to_json
from server.statistics import StatisticsMessages, statistics_json
from support.grpc import IDENTITY, put


def counted():
    async def main():
        served = put(IDENTITY, 4)
        counters = served.counters
        counters.success, counters.success_ns = 10, 1000
        counters.failure["REJECTED"], counters.failure["BACKEND"] = 2, 1
        counters.failure_ns = 70
        counters.inferences, counters.executions = 25, 4
        counters.queue_ns, counters.input_ns = 400, 10
        counters.infer_ns, counters.output_ns = 500, 20
        counters.last_inference_ms = 1_700_000_000_123
        counters.batches[8] = BatchStatistics(3, 7, 300, 9)
        counters.batches[1] = BatchStatistics(1, 1, 100, 2)
        await served.scheduler.close()
        return served

    return asyncio.run(main())


def test_each_figure_means_what_tritons_means():
    found = StatisticsMessages().of([counted()]).model_stats[0]
    assert (found.name, found.version) == ("identity", "4")
    assert (found.inference_count, found.execution_count) == (25, 4)
    assert found.last_inference == 1_700_000_000_123
    stats = found.inference_stats
    assert (stats.success.count, stats.success.ns) == (10, 1000)
    assert (stats.fail.count, stats.fail.ns) == (3, 70)
    assert (stats.queue.count, stats.queue.ns) == (10, 400)
    assert (stats.compute_input.count, stats.compute_input.ns) == (10, 10)
    assert (stats.compute_infer.count, stats.compute_infer.ns) == (10, 500)
    assert (stats.compute_output.count, stats.compute_output.ns) == (10, 20)


def test_batches_are_listed_by_size():
    batches = StatisticsMessages().of([counted()]).model_stats[0].batch_stats
    assert [(one.batch_size, one.compute_infer.count) for one in batches] == [(1, 1), (8, 3)]
    assert batches[1].compute_input.ns == 7


def test_json_spells_everything_out_with_numbers_as_numbers():
    found = statistics_json([counted()])["model_stats"][0]
    assert found["inference_count"] == 25
    assert found["inference_stats"]["cache_hit"] == {"count": 0, "ns": 0}
    assert found["inference_stats"]["success"] == {"count": 10, "ns": 1000}
    assert found["batch_stats"][0] == {
        "batch_size": 1,
        "compute_input": {"count": 1, "ns": 1},
        "compute_infer": {"count": 1, "ns": 100},
        "compute_output": {"count": 1, "ns": 2},
    }


def test_no_models_is_an_empty_list():
    assert statistics_json([]) == {"model_stats": []}


def test_messages_and_json_say_the_same_also_after_a_change():
    messages, served = StatisticsMessages(), counted()
    served.counters.responses[0] = ResponseStatistics(5, 6, 7, 8, success=5, cancel=1, cancel_ns=3)
    for success in (10, 11, 11):
        served.counters.success = success
        found = to_json(messages.of([served]))
        assert found == statistics_json([served])
        assert found["model_stats"][0]["inference_stats"]["success"]["count"] == success


def test_messages_of_versions_that_were_unloaded_are_let_go_of_when_all_are_asked_for():
    messages, stays, goes = StatisticsMessages(), counted(), counted()
    messages.of([stays, goes], are_all=True)
    messages.of([stays])
    assert len(messages) == 2
    assert len(messages.of([stays], are_all=True).model_stats) == 1
    assert len(messages) == 1
