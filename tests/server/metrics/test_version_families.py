"""Lines of versions kept from scrape to scrape: they say what fresh ones would."""

import asyncio
import gc
import random
import weakref

from schedulers.cache import ResponseCache
from schedulers.cached_scheduler import CachedScheduler
from server.metrics.version_families import VersionTexts
from server.served_version import ServedVersion
from server.settings.metrics_config import MetricsConfig
from support.grpc import IDENTITY, put

SHOWN = MetricsConfig(histograms=True)


def count_one_more(served: ServedVersion, chance: random.Random) -> None:
    """Change one of the things that a version shows."""
    counters = served.counters
    match chance.randrange(6):
        case 0:
            counters.success += 1
            counters.request_histogram.add(chance.choice((0, 50_000, 3_000_000_000)))
        case 1:
            counters.queue_histogram.add(0)
        case 2:
            counters.failure["BACKEND"] += 1
        case 3:
            counters.pending = chance.randrange(3)
        case 4:
            served.load_seconds = chance.random()
        case 5 if not isinstance(served.scheduler, CachedScheduler):
            cache = ResponseCache(1 << 20)
            served.scheduler = CachedScheduler(served.scheduler, cache, counters)


def test_kept_lines_are_those_of_a_fresh_rendering_whatever_changes() -> None:
    async def main() -> None:
        chance, kept = random.Random(5), VersionTexts(SHOWN)
        everyone = [put(IDENTITY, number) for number in range(1, 6)]
        here = everyone[:3]
        for _ in range(200):
            for _ in range(chance.randrange(3)):
                count_one_more(chance.choice(everyone), chance)
            if not chance.randrange(4):
                here = chance.sample(everyone, chance.randrange(6))
            assert kept.render(here) == VersionTexts(SHOWN).render(here)
        for one in everyone:
            await one.scheduler.close()

    asyncio.run(main())


def test_a_version_that_was_unloaded_is_not_kept_by_what_was_shown_of_it() -> None:
    async def main() -> None:
        kept, served = VersionTexts(SHOWN), put(IDENTITY)
        kept.render([served])
        await served.scheduler.close()
        counters = weakref.finalize(served.scheduler, lambda: None)
        del served
        gc.collect()
        assert not counters.alive

    asyncio.run(main())
