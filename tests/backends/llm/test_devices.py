"""A language model on a GPU: what is said where there is none, and that it answers as on a CPU."""

import sys
from pathlib import Path

import pytest
import torch

from backends.errors import LoadFailed
from backends.llm.config.precision import CacheType, Precision
from backends.llm.embedder import open_embedder
from backends.llm.errors import DeviceLost, NoDevice
from backends.llm.load import LoadSettings, load
from backends.llm.model.decoder import Decoder
from backends.llm.ops.choose import choose_ops, open_device
from backends.llm.ops.cuda import CudaOps, triton_kernels
from backends.llm.rows import ForwardBatch
from backends.llm.sampling.params import SamplingParams
from backends.llm.span import Span
from backends.seam import Device
from repository.model import ModelConfig, ModelVersion
from schedulers.llm.engine.engine import Engine
from schedulers.llm.engine.open import open_engine
from schedulers.llm.gateway.instance import start_engine
from schedulers.llm.generation import GenerateRequest
from support.llm import (
    BLOCK_TOKENS,
    answers,
    decoder_config,
    load_decoder,
    logits,
    make_checkpoint,
    make_engine,
    prompt,
    save_tokeniser,
    tokens_of,
)
from support.triton import DEVICE, needs_gpu

LAST = torch.cuda.device_count()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("model") / "1"
    make_checkpoint("qwen3", made)
    save_tokeniser(made)
    return made


def settings(
    device: str, precision: Precision = "float32", cache: CacheType = "auto"
) -> LoadSettings:
    return LoadSettings(16 << 20, precision, cache, step_tokens=32, device=device)


def test_a_gpu_that_torch_does_not_see_fails_the_load_naming_what_there_is(folder: Path) -> None:
    said = rf"cuda:{LAST} was asked for, but torch .* sees {LAST} CUDA devices; use instance_group"
    with pytest.raises(NoDevice, match=said):
        load(folder, settings(f"cuda:{LAST}"))
    with pytest.raises(NoDevice, match=said):
        open_embedder(folder, settings(f"cuda:{LAST}"), "mean")


def test_an_engine_on_a_gpu_that_is_not_there_fails_naming_the_version(folder: Path) -> None:
    version = ModelVersion("m", 3, folder.parent, folder, ModelConfig(name="m", backend="llm"), "")
    with pytest.raises(LoadFailed) as failed:
        start_engine(version, Device("cuda", LAST, 1), "m_0")
    assert str(failed.value).startswith(
        f"model 'm' version 3: cuda:{LAST} was asked for, but torch"
    )


def test_the_cpu_is_always_there() -> None:
    assert open_device("cpu") == torch.device("cpu")


@pytest.mark.parametrize("variant", ["gemma2", "mistral-window", "olmo2", "qwen2"])
@pytest.mark.parametrize("precision", ["bfloat16", "int8", "int4"])
@pytest.mark.parametrize("cache", ["auto", "int8"])
def test_nothing_that_a_step_computes_with_lies_on_another_device(
    tmp_path: Path, variant: str, precision: Precision, cache: CacheType
) -> None:
    """Torch's device "meta" has no numbers, and mixes with others as little as a GPU does."""
    make_checkpoint(variant, tmp_path)
    meta = torch.device("meta")
    decoder = load_decoder(
        tmp_path,
        precision=precision,
        cache_type=cache,
        make_ops=lambda config: CudaOps(config, torch.bfloat16, BLOCK_TOKENS, meta, None),
    )
    found = logits(decoder, Span((5, 6, 7), 0, (1,), 2), Span((5,), 20, (3, 4), 1))
    assert (found.device, tuple(found.shape)) == (meta, (3, 160))
    assert decoder.discard([1]) == 0


def test_without_triton_attention_is_left_to_torch_with_one_line(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("paged_attention", "packed_linear"):
        monkeypatch.delitem(sys.modules, f"backends.llm.kernels.{name}", raising=False)
        monkeypatch.delattr(f"backends.llm.kernels.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "triton", None)
    ops = choose_ops(decoder_config(), "int8", "auto", 16, device=torch.device("cuda", 0))
    assert ops.name == "cuda, in plain torch"
    assert not ops.replays
    (line,) = caplog.messages
    assert "in plain torch on the GPU, which is slower: Triton cannot be imported" in line


def asked(name: str, which: int, length: int, answer: int) -> GenerateRequest:
    return GenerateRequest(
        name, prompt(which, length), answer, SamplingParams(temperature=0.0), ignore_end=True
    )


def greedy(engine: Engine, answer: int) -> dict[str, list[int]]:
    """Answers of requests that are chunked, batched and of unlike lengths."""
    requests = [asked(f"r{n}", n, length, answer) for n, length in enumerate((50, 3, 20))]
    return {id: tokens_of(outputs) for id, outputs in answers(engine, *requests).items()}


def test_answers_by_way_of_the_kernels_are_those_of_plain_torch(folder: Path) -> None:
    pytest.importorskip("triton", reason="Triton is not installed")
    decoder = load_decoder(
        folder,
        make_ops=lambda config: CudaOps(
            config, torch.float32, BLOCK_TOKENS, DEVICE, triton_kernels()
        ),
    )
    assert greedy(make_engine(decoder), 4) == greedy(make_engine(load_decoder(folder)), 4)


class Failing(Decoder):
    def forward(self, batch: ForwardBatch) -> torch.Tensor:
        raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")


def test_a_device_that_fails_ends_the_engine_because_it_would_fail_every_later_step(
    folder: Path,
) -> None:
    decoder = load_decoder(folder)
    decoder.__class__ = Failing
    engine = make_engine(decoder)
    engine.submit(asked("a", 1, 9, 4), 0.0)
    with pytest.raises(DeviceLost, match="illegal memory access"):
        engine.step(0.0)


@pytest.mark.gpu
@needs_gpu
def test_answers_on_a_gpu_are_those_on_a_cpu(folder: Path) -> None:
    """By way of recorded steps."""
    loaded = load(folder, settings("cuda:0"))
    assert loaded.ops == "cuda"
    engines = [open_engine(folder, settings(device), running=8) for device in ("cuda:0", "cpu")]
    first, second = (greedy(engine, 30) for engine in engines)
    assert first == second


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("precision", ["bfloat16", "int8", "int4"])
@pytest.mark.parametrize("cache", ["auto", "int8"])
def test_a_model_occupies_on_a_gpu_what_was_planned(
    folder: Path, precision: Precision, cache: CacheType
) -> None:
    """`load` holds what it has loaded against the plan."""
    torch.cuda.synchronize()
    engine = open_engine(folder, settings("cuda:0", precision, cache), running=8)
    assert all(len(tokens) == 5 for tokens in greedy(engine, 5).values())


@pytest.mark.gpu
@needs_gpu
def test_an_engine_on_a_gpu_gives_nothing_back_and_goes_on(folder: Path) -> None:
    engine = open_engine(folder, settings("cuda:0"), running=8)
    blocks = engine.counts().blocks.empty
    assert engine.shrink(10) == 0
    assert engine.counts().blocks.empty == blocks


@pytest.mark.gpu
@needs_gpu
def test_a_decoder_embeds_on_a_gpu_as_on_a_cpu(folder: Path) -> None:
    texts = [prompt(1, 70), prompt(2, 9)]
    found, wanted = (
        torch.from_numpy(open_embedder(folder, settings(device), "mean").embed(texts))
        for device in ("cuda:0", "cpu")
    )
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=0.0)
