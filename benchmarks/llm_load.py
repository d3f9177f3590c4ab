"""Sends a workload to /v1/completions as streams, and hears each token when it comes."""

import asyncio
import json
import time
from collections.abc import Sequence

import aiohttp

from benchmarks.llm_figures import Heard
from benchmarks.llm_workloads import SAMPLINGS, Ask

RUN_S = 3600.0


def send(address: str, model: str, asks: Sequence[Ask]) -> tuple[list[Heard], float]:
    """Every ask at its time; what was heard of each, and seconds until the last had ended."""
    return asyncio.run(_send(address, model, asks))


def send_beside(
    address: str, model: str, asks: Sequence[Ask], beside: Sequence[Ask]
) -> tuple[list[Heard], list[Heard]]:
    """Two workloads at once; what was heard of each."""

    async def both() -> tuple[list[Heard], list[Heard]]:
        (first, _), (second, _) = await asyncio.gather(
            _send(address, model, asks), _send(address, model, beside)
        )
        return first, second

    return asyncio.run(both())


async def _send(address: str, model: str, asks: Sequence[Ask]) -> tuple[list[Heard], float]:
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=RUN_S)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        began = time.perf_counter()
        heard = await asyncio.gather(
            *(_ask(session, f"http://{address}/v1/completions", model, ask, began) for ask in asks)
        )
        return list(heard), time.perf_counter() - began


async def _ask(
    session: aiohttp.ClientSession, url: str, model: str, ask: Ask, began: float
) -> Heard:
    await asyncio.sleep(max(0.0, began + ask.at_s - time.perf_counter()))
    body = {"model": model, "prompt": ask.prompt, "max_tokens": ask.tokens, "stream": True}
    body |= {"stream_options": {"include_usage": True}, "ignore_eos": True}
    body |= SAMPLINGS[ask.sampling]
    sent, arrivals, tokens = time.perf_counter(), [], 0
    async with session.post(url, json=body) as answer:
        if answer.status == 200:
            async for line in answer.content:
                if not line.startswith(b"data: {"):
                    continue
                event = json.loads(line[6:])
                if event.get("choices") and event["choices"][0].get("text"):
                    arrivals.append(time.perf_counter() - sent)
                if usage := event.get("usage"):
                    tokens = usage["completion_tokens"]
        else:
            await answer.read()
    ended = time.perf_counter()
    status = answer.status if answer.status != 200 or tokens == ask.tokens else 0
    return Heard(status, tuple(arrivals), tokens, sent - began, ended - began)
