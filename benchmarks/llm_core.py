"""The language engine without a server: our kernels, plain torch and transformers on one model.

`python -m benchmarks.llm_core` makes a random model of about 100 million parameters, runs the same
greedy workload through every engine in turn, several rounds of it, and prints medians and ratios.
Needs the extras `llm` and `dev`.
"""

import argparse
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from tokenizers import Tokenizer, models

from backends.llm.load import LoadSettings
from backends.llm.ops.seam import Precision
from backends.llm.sampling.params import SamplingParams
from schedulers.llm.engine.engine import Engine
from schedulers.llm.engine.open import open_engine
from schedulers.llm.generation import GenerateRequest

SIZES: dict[str, dict[str, Any]] = {
    "100m": {
        "hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 12,
        "num_attention_heads": 12, "num_key_value_heads": 4, "vocab_size": 32_000,
    },
    "500m": {
        "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
        "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151_936,
    },
}  # fmt: skip
BUDGET = 2 << 30
Workload = list[tuple[tuple[int, ...], int]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="100m")
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=[], help="names of the engines to run")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    with TemporaryDirectory() as folder:
        model = make_model(Path(folder), arguments.size)
        workload = make_workload(arguments.requests, SIZES[arguments.size]["vocab_size"])
        engines = make_engines(Path(folder), model, arguments.only)
        report(measure(engines, workload, arguments.rounds), workload)


def make_model(folder: Path, size: str) -> Any:
    import transformers

    torch.manual_seed(0)
    config = transformers.Qwen2Config(
        **SIZES[size], max_position_embeddings=4096, tie_word_embeddings=True, eos_token_id=None,
        bos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    model: Any = transformers.Qwen2ForCausalLM(config)
    model = model.to(torch.bfloat16).eval()
    model.save_pretrained(folder)
    tokenizer = Tokenizer(models.WordLevel({"<unk>": 0}, unk_token="<unk>"))
    tokenizer.save(str(folder / "tokenizer.json"))
    return model


def make_workload(requests: int, vocabulary: int) -> Workload:
    """Prompts of 64 to 256 tokens, answers of 64 to 128."""
    draw = random.Random(0)
    return [
        (
            tuple(draw.randrange(1, vocabulary) for _ in range(draw.randint(64, 256))),
            draw.randint(64, 128),
        )
        for _ in range(requests)
    ]


def make_engines(
    folder: Path, model: Any, only: list[str]
) -> dict[str, Callable[[Workload], None]]:
    made: dict[str, Callable[[], Callable[[Workload], None]]] = {
        "kernels int8": lambda: ours(folder, "int8", compiled=True),
        "kernels int4": lambda: ours(folder, "int4", compiled=True),
        "kernels bf16": lambda: ours(folder, "bfloat16", compiled=True),
        "torch int8": lambda: ours(folder, "int8", compiled=False),
        "torch bf16": lambda: ours(folder, "bfloat16", compiled=False),
        "transformers 8": lambda: lambda workload: generate(model, workload, 8),
        "transformers 1": lambda: lambda workload: generate(model, workload, 1),
    }
    return {name: make() for name, make in made.items() if not only or name in only}


def ours(folder: Path, precision: Precision, compiled: bool) -> Callable[[Workload], None]:
    settings = LoadSettings(memory_budget=BUDGET, precision=precision, compiled=compiled)
    engine = open_engine(folder, settings)
    return lambda workload: run(engine, workload)


def run(engine: Engine, workload: Workload) -> None:
    engine.forget_cached()
    greedy = SamplingParams(temperature=0.0)
    for index, (prompt, answer) in enumerate(workload):
        engine.submit(GenerateRequest(str(index), prompt, answer, greedy, ignore_end=True), 0.0)
    while engine.busy:
        engine.step(time.monotonic())


@torch.inference_mode()
def generate(model: Any, workload: Workload, batch: int) -> None:
    """Static batches: padded on the left, each as long as its longest answer."""
    for first in range(0, len(workload), batch):
        part = workload[first : first + batch]
        longest = max(len(prompt) for prompt, _ in part)
        padded = [[0] * (longest - len(prompt)) + list(prompt) for prompt, _ in part]
        seen = [[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt, _ in part]
        model.generate(
            torch.tensor(padded), attention_mask=torch.tensor(seen), do_sample=False,
            max_new_tokens=max(answer for _, answer in part),
        )  # fmt: skip


class Times(NamedTuple):
    """One run of the workload, in seconds; on a busy machine the CPU's are the ones to compare."""

    wall: float
    cpu: float


def measure(
    engines: dict[str, Callable[[Workload], None]], workload: Workload, rounds: int
) -> dict[str, list[Times]]:
    """By engine, one engine after the other in each round."""
    times: dict[str, list[Times]] = {name: [] for name in engines}
    for engine in engines.values():
        engine(workload[:1])
    for _ in range(rounds):
        for name, engine in engines.items():
            wall, cpu = time.perf_counter(), time.process_time()
            engine(workload)
            found = Times(time.perf_counter() - wall, time.process_time() - cpu)
            times[name].append(found)
            print(f"{name}: {found.wall:.1f} s, {found.cpu:.1f} s of CPU", flush=True)
    return times


def report(times: dict[str, list[Times]], workload: Workload) -> None:
    tokens = sum(answer for _, answer in workload)
    first = next(iter(times))
    print(f"{len(workload)} requests, {tokens} output tokens; medians of the rounds")
    for name, runs in times.items():
        wall = statistics.median(run.wall for run in runs)
        cpu = statistics.median(run.cpu for run in runs)
        pairs = list(zip(times[first], runs, strict=True))
        wall_ratio = statistics.median(other.wall / mine.wall for mine, other in pairs)
        cpu_ratio = statistics.median(other.cpu / mine.cpu for mine, other in pairs)
        print(
            f"{name:16} {tokens / wall:7.1f} tok/s {tokens / cpu:7.1f} tok per CPU-second; "
            f"{first} is {wall_ratio:.1f} times as fast, {cpu_ratio:.1f} by CPU"
        )


if __name__ == "__main__":
    main()
