"""A language model on a GPU beside what its memory allows, and beside transformers.

`python -m benchmarks.llm_gpu decode prefill transformers server --size 8b --json results.json`
makes a random checkpoint on the GPU and measures, each part by itself: steps that decode, by batch,
as CUDA graphs and without; prompts; transformers' `generate` with static batches; this server with
as many streams at once. Needs one NVIDIA GPU, and the extras `llm` and `dev`.

The limit of a step: the weights that it reads, over the bytes a second that a large copy on the
device moves (read and written).
"""

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from backends.llm.load import LoadSettings
from backends.llm.sampling.params import SamplingParams
from benchmarks import llm_ours
from benchmarks.llm_figures import figures
from benchmarks.llm_load import send
from benchmarks.llm_model import save_tokenizer
from benchmarks.llm_workloads import Ask, at_once
from benchmarks.peers import modelyard
from schedulers.llm.engine.engine import Engine
from schedulers.llm.engine.open import open_engine
from schedulers.llm.generation import GenerateRequest

SIZES: dict[str, dict[str, Any]] = {
    "1m": {
        "hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 4_096,
        "tie_word_embeddings": True,
    },
    "500m": {
        "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
        "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151_936,
        "tie_word_embeddings": True,
    },
    "8b": {
        "hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128_256,
        "tie_word_embeddings": False,
    },
}  # fmt: skip
"""Shapes of Qwen 2.5 0.5B and of Llama 3 8B, as Qwen 2 and Llama."""
CONTEXT = 8192
PROMPT, ANSWER = 128, 64
GREEDY = SamplingParams(temperature=0.0)
Part = Callable[[Path, argparse.Namespace], dict[str, Any]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument("--size", choices=SIZES, default="500m")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32, 128, 256])
    parser.add_argument("--step-tokens", type=int, nargs="+", default=[256, 2048, 8192])
    parser.add_argument("--precision", default="bfloat16")
    parser.add_argument("--graphs", choices=["yes", "no", "both"], default="both")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--folder", type=Path, help="where the checkpoint lies, or is to lie")
    parser.add_argument("--sampling", default="greedy", help="of the server's requests")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with TemporaryDirectory() as scratch:
        folder = arguments.folder or Path(scratch) / arguments.size
        make_checkpoint(folder, arguments.size, arguments.device)
        results = {"machine": machine(arguments.device)}
        for part in arguments.parts:
            results[part] = PARTS[part](folder, arguments)
            print(part, json.dumps(results[part], indent=1), flush=True)
            if arguments.json is not None:
                arguments.json.write_text(json.dumps(results, indent=1))


def machine(device: str) -> dict[str, Any]:
    if device == "cpu":
        return {"torch": torch.__version__, "device": "cpu"}
    return {
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(device),
        "copy_bytes_per_s": copy_rate(torch.device(device)),
    }


def copy_rate(device: torch.device, size: int = 2 << 30) -> float:
    """Bytes a second of a copy on the device, read and written."""
    source = torch.randint(0, 255, (size,), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    times = [timed_s(lambda: target.copy_(source)) for _ in range(10)]
    return 2 * size / statistics.median(times)


def timed_s(call: Callable[[], object]) -> float:
    _wait()
    start = time.perf_counter()
    call()
    _wait()
    return time.perf_counter() - start


def make_checkpoint(folder: Path, size: str, device: str) -> None:
    """A random bfloat16 model, made on the device; nothing where there is one already."""
    if (folder / "tokenizer.json").is_file():
        return
    import transformers

    shape = SIZES[size]
    name = "Llama" if size == "8b" else "Qwen2"
    config = getattr(transformers, f"{name}Config")(
        **shape, max_position_embeddings=CONTEXT, eos_token_id=0, bos_token_id=0, pad_token_id=0
    )
    folder.mkdir(parents=True)
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(device):
        model = getattr(transformers, f"{name}ForCausalLM")(config)
    torch.set_default_dtype(torch.float32)
    model.save_pretrained(folder)
    save_tokenizer(shape["vocab_size"], folder)
    del model
    if device != "cpu":
        torch.cuda.empty_cache()


def opened(folder: Path, arguments: argparse.Namespace, **changes: Any) -> Engine:
    settings = LoadSettings(
        memory_budget=48 << 30 if arguments.device != "cpu" else 4 << 30,
        precision=arguments.precision,
        step_tokens=8192,
        device=arguments.device,
    )
    return open_engine(folder, replace(settings, **changes), running=max(arguments.batches))


def decode(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds of a step and tokens a second by batch, from steps that only decode."""
    found = {}
    for graphs in {"yes": (True,), "no": (False,), "both": (True, False)}[arguments.graphs]:
        engine = opened(folder, arguments, graphs=graphs)
        rows = [steps_of(engine, folder, batch) for batch in arguments.batches]
        found["graphs" if graphs else "one by one"] = rows
        del engine
        _forget()
    weights = sum(one.stat().st_size for one in folder.glob("*.safetensors"))
    return {"checkpoint_bytes": weights, **found}


def steps_of(engine: Engine, folder: Path, batch: int, answer: int = ANSWER) -> dict[str, float]:
    """Medians over the steps in which every request gets a token; the first is not counted, which
    records what is not recorded yet."""
    engine.forget_cached()
    for index, prompt in enumerate(prompts(folder, batch, PROMPT)):
        engine.submit(GenerateRequest(f"{index}", prompt, answer, GREEDY, ignore_end=True), 0.0)
    times: list[float] = []
    while engine.busy:
        start = time.perf_counter()
        outputs = engine.step(time.monotonic())
        if len(outputs) == batch:
            times.append(time.perf_counter() - start)
    step_s = statistics.median(times[2:])
    return {
        "batch": batch,
        "step_ms": step_s * 1e3,
        "tokens_per_s": batch / step_s,
        "first_step_ms": times[1] * 1e3,
    }


def prompts(folder: Path, count: int, length: int, seed: int = 0) -> list[tuple[int, ...]]:
    vocabulary = json.loads((folder / "config.json").read_text())["vocab_size"]
    draw = random.Random(seed)
    return [tuple(draw.randrange(300, vocabulary) for _ in range(length)) for _ in range(count)]


def prefill(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Prompt tokens a second of four prompts of 4,096 tokens, by tokens of a step."""
    found = {}
    for step_tokens in arguments.step_tokens:
        engine = opened(folder, arguments, step_tokens=max(step_tokens, 256))
        times = []
        for round in range(3):
            for index, prompt in enumerate(prompts(folder, 4, 4096, seed=round)):
                name = f"{round}/{index}"
                engine.submit(GenerateRequest(name, prompt, 1, GREEDY, ignore_end=True), 0.0)
            start = time.perf_counter()
            while engine.busy:
                engine.step(time.monotonic())
            times.append(time.perf_counter() - start)
        found[f"{step_tokens}"] = 4 * 4096 / min(times)
        del engine
        _forget()
    return found


def transformers_generate(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Tokens a second of static batches; and whether greedy tokens are those of this engine."""
    import transformers

    dtype = torch.float32 if arguments.precision == "float32" else torch.bfloat16
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    model = model.to(arguments.device).eval()
    found: dict[str, Any] = {}
    for batch in arguments.batches:
        tokens = torch.tensor(prompts(folder, batch, PROMPT), device=arguments.device)
        _generate(model, tokens, 2)
        times = [timed_s(partial(_generate, model, tokens, count)) for count in (8, 40)]
        step_s = (times[1] - times[0]) / 32
        found[f"{batch}"] = {"step_ms": step_s * 1e3, "tokens_per_s": batch / step_s}
    del model
    _forget()
    return found


@torch.inference_mode()
def _generate(model: Any, tokens: torch.Tensor, count: int) -> Any:
    return model.generate(
        tokens, attention_mask=torch.ones_like(tokens), do_sample=False, max_new_tokens=count,
        min_new_tokens=count,
    )  # fmt: skip


def agreement(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Of the logits after prompts: relative error of this decoder and of transformers in bfloat16
    against transformers in float32, all on the device; greedy tokens alike in float32."""
    import transformers

    from backends.llm.rows import pack
    from backends.llm.span import Span

    load = transformers.AutoModelForCausalLM.from_pretrained
    asked = prompts(folder, 4, PROMPT)
    tokens = torch.tensor(asked, device=arguments.device)
    logits = {}
    for dtype in (torch.float32, torch.bfloat16):
        model = load(folder, dtype=dtype).to(arguments.device).eval()
        with torch.inference_mode():
            logits[dtype] = model(tokens).logits[:, -1].float().cpu()
        if dtype is torch.float32:
            greedy = _generate(model, tokens[:, :], 32)[:, PROMPT:].cpu().tolist()
        del model
        _forget()
    exact, found = logits[torch.float32], {}
    for precision in ("float32", "bfloat16", "int8", "int4"):
        engine = opened(folder, replace_precision(arguments, precision))
        runner = engine._runner
        spans = [Span(one, 0, range(8 * n, 8 * n + 8), 1) for n, one in enumerate(asked)]
        rows = runner._decoder.forward(pack(spans, 16)).cpu()
        found[precision] = relative(rows, exact)
        if precision == "float32":
            found["greedy tokens alike in float32"] = _same(engine, asked, greedy)
        del engine, runner
        _forget()
    found["transformers in bfloat16"] = relative(logits[torch.bfloat16], exact)
    return found


def replace_precision(arguments: argparse.Namespace, precision: str) -> argparse.Namespace:
    return argparse.Namespace(**{**vars(arguments), "precision": precision})


def relative(found: torch.Tensor, exact: torch.Tensor) -> float:
    return float((found - exact).norm() / exact.norm())


def _same(engine: Engine, asked: Sequence[Sequence[int]], wanted: Sequence[Sequence[int]]) -> float:
    """The share of tokens that are alike up to the first that is not."""
    engine.forget_cached()
    for index, prompt in enumerate(asked):
        request = GenerateRequest(f"{index}", tuple(prompt), 32, GREEDY, ignore_end=True)
        engine.submit(request, 0.0)
    given: dict[str, list[int]] = {f"{index}": [] for index in range(len(asked))}
    while engine.busy:
        for output in engine.step(time.monotonic()):
            given[output.id].append(output.token if output.token is not None else -1)
    alike = 0
    for index, row in enumerate(wanted):
        pairs = zip(given[f"{index}"], row, strict=False)
        alike += next((n for n, (one, other) in enumerate(pairs) if one != other), len(row))
    return alike / sum(map(len, wanted))


def server(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Over HTTP, as streams: tokens a second, TTFT and ITL by requests at once."""
    vocabulary = json.loads((folder / "config.json").read_text())["vocab_size"]
    found = {}
    kind = "KIND_CPU" if arguments.device == "cpu" else "KIND_GPU"
    settings = {
        "precision": arguments.precision, "max_running": "256", "step_tokens": "2048",
        "memory_budget": "48GiB" if kind == "KIND_GPU" else "4GiB",
    }  # fmt: skip
    with TemporaryDirectory() as cache:
        repository = Path(cache) / "repository"
        llm_ours.write_model(repository / "model", folder, settings, kind)
        with modelyard.started(repository, Path(cache)) as peer:
            send(peer.rest, "model", at_once(4, vocabulary, seed=9))
            for batch in arguments.batches:
                asks = [
                    Ask(prompt, 64, sampling=arguments.sampling)
                    for prompt in prompts(folder, batch, PROMPT, seed=batch)
                ]
                send(peer.rest, "model", asks)
                fresh = [replace(one, prompt=one.prompt[::-1]) for one in asks]
                heard, wall_s = send(peer.rest, "model", fresh)
                assert {one.status for one in heard} == {200}, {one.status for one in heard}
                found[f"{batch}"] = figures(heard, wall_s)._asdict()
    return found


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _forget() -> None:
    import gc

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


PARTS: dict[str, Part] = {
    "decode": decode,
    "prefill": prefill,
    "transformers": transformers_generate,
    "agreement": agreement,
    "server": server,
}


if __name__ == "__main__":
    main()
