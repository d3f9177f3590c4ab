"""Profiles: a search for the settings under which a version is served best."""

from typing import Annotated, Literal

from msgspec import Meta

from control.jobs.specs.source import JobSource

Count = Annotated[int, Meta(ge=1, le=256)]
Counts = Annotated[tuple[Count, ...], Meta(min_length=1, max_length=8)]
Delay = Annotated[int, Meta(ge=0, le=10_000_000)]
Delays = Annotated[tuple[Delay, ...], Meta(min_length=1, max_length=8)]


class ProfileSpec(JobSource, frozen=True, kw_only=True, tag_field="type", tag="profile"):
    """Search the settings that serve the version best under a latency or throughput goal.

    goal: "throughput" wants the most requests a second, "latency" the lowest 99th percentile.
    latency_ms: for "throughput", the most that the 99th percentile may be; 0 for any.
    per_second: for "latency", the least requests a second; 0 for any rate.
    data: an .npz with an array for each input, rows in front; "sampled" sends requests again that
        the server has sampled, which the database keeps until the job is done, for a day at most;
        "" sends zeros and small random numbers, which every open
        dimension but the batch forbids.
    arrivals: "clients" send their next requests when they have their answers; "sampled": requests
        come as the sampled ones did, whatever answers there are, which takes `data` "sampled" and
        the goal "latency".
    speed: of sampled arrivals: 2 halves the times between them.
    concurrency: clients; with sampled arrivals, the most requests that wait for answers.
    rows: of each request, where the model has batches; sampled ones have their own.
    instances, batch_sizes, delays_us, threads: the values to choose among, of `instance_group`,
        `max_batch_size` (1: no dynamic batching), `max_queue_delay_microseconds` and, for
        onnxruntime, `intra_op_thread_count`.
    method: "search" measures a part of all combinations, "grid" each.
    share: of as many measurements as there are combinations, those that a search makes, with the
        settings in force and the last comparison of the best.
    seconds: of one measurement.
    """

    goal: Literal["throughput", "latency"] = "throughput"
    latency_ms: Annotated[float, Meta(ge=0.0)] = 0.0
    per_second: Annotated[float, Meta(ge=0.0)] = 0.0
    data: str = ""
    arrivals: Literal["clients", "sampled"] = "clients"
    speed: Annotated[float, Meta(ge=0.01, le=1000.0)] = 1.0
    concurrency: Annotated[int, Meta(ge=1, le=1024)] = 8
    rows: Annotated[int, Meta(ge=1, le=1024)] = 1
    instances: Counts = (1, 2, 4)
    batch_sizes: Counts = (1, 4, 8, 16, 32)
    delays_us: Delays = (0, 500, 2000)
    threads: Counts = (1, 2)
    method: Literal["search", "grid"] = "search"
    share: Annotated[float, Meta(gt=0.0, le=1.0)] = 0.15
    seconds: Annotated[float, Meta(gt=0.0, le=600.0)] = 2.0
