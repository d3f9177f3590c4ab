"""Steps of single rows are filled up to a few sizes, and on a GPU recorded and replayed."""

from itertools import pairwise
from pathlib import Path

import pytest
import torch

from backends.llm.config.families import read_config
from backends.llm.graphs import RecordingDecoder, fill_up, single_rows, size_for
from backends.llm.model.decoder import Decoder
from backends.llm.ops.cuda import CudaOps, triton_kernels
from backends.llm.rows import ForwardBatch, pack
from backends.llm.span import Span
from backends.llm.weights.checkpoint import Checkpoint
from backends.llm.weights.stream import load_weights
from support.llm import BLOCK_TOKENS, CONTEXT, load_decoder, logits, make_checkpoint, prompt
from support.triton import DEVICE, needs_gpu

LONG, SHORT, THIRD = range(8), (12, 9, 30), (20, 21)


def test_a_size_is_the_next_power_of_two() -> None:
    sizes = [size_for(rows) for rows in range(1, 10)]
    assert sizes == [1, 2, 4, 4, 8, 8, 8, 8, 16]
    assert size_for(256) == 256
    assert size_for(257) is None


def test_a_step_with_a_chunk_is_not_one_of_single_rows() -> None:
    one, chunk = Span((5,), 3, (0,), 1), Span((5, 6), 0, (1,), 1)
    assert single_rows(pack((one, one), BLOCK_TOKENS))
    assert not single_rows(pack((one, chunk), BLOCK_TOKENS))


def test_what_is_added_are_copies_of_the_last_row() -> None:
    spans = Span((5,), 20, (3, 4), 1), Span((6,), 2, (7,), 0), Span((7,), 33, (1, 8, 2), 1)
    filled = fill_up(pack(spans, BLOCK_TOKENS), 8)
    assert filled.tokens.tolist() == [5, 6, 7, 7, 7, 7, 7, 7]
    assert filled.positions.tolist() == [20, 2, 33, 33, 33, 33, 33, 33]
    assert filled.slots.tolist() == [68, 114, 33, 33, 33, 33, 33, 33]
    assert filled.tables.tolist() == [[3, 4, 0], [7, 0, 0], *[[1, 8, 2]] * 6]
    assert filled.span_of.tolist() == filled.logit_rows.tolist() == list(range(8))
    assert [(place.first, place.last) for place in filled.places] == list(pairwise(range(9)))
    assert filled.places[7].context == 34


def test_a_step_that_fits_is_left_as_it_is() -> None:
    batch = pack((Span((5,), 20, (3, 4), 1), Span((6,), 2, (7,), 1)), BLOCK_TOKENS)
    filled = fill_up(batch, 2)
    assert torch.equal(filled.tokens, batch.tokens)
    assert torch.equal(filled.tables, batch.tables)
    assert filled.places == batch.places


def test_a_filled_up_step_gives_its_rows_the_same_logits(tmp_path: Path) -> None:
    make_checkpoint("gemma2", tmp_path)
    decoder, other = load_decoder(tmp_path), load_decoder(tmp_path)
    for each in (decoder, other):
        _begin(each)
    for position in range(3):
        batch = _step(position)
        wanted = other.forward(batch)
        torch.testing.assert_close(decoder.forward(fill_up(batch, 4))[:3], wanted)


def _begin(decoder: Decoder) -> None:
    spans = [
        Span(prompt(seed, length), 0, blocks, 0)
        for seed, length, blocks in ((1, 90, LONG), (2, 31, SHORT), (3, 1, THIRD))
    ]
    logits(decoder, *spans)


def _step(number: int) -> ForwardBatch:
    starts = ((90, LONG), (31, SHORT), (1, THIRD))
    return pack(
        [Span((7 + number,), start + number, blocks, 1) for start, blocks in starts], BLOCK_TOKENS
    )


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("variant", ["llama", "gemma2", "qwen3"])
def test_replayed_steps_give_the_logits_of_those_computed_at_once(
    tmp_path: Path, variant: str
) -> None:
    make_checkpoint(variant, tmp_path)
    recording, plain = _on_gpu(tmp_path, RecordingDecoder), _on_gpu(tmp_path, Decoder)
    for each in (recording, plain):
        _begin(each)
    for position in range(16):
        found = recording.forward(_step(position)).clone()
        torch.testing.assert_close(found, plain.forward(_step(position)), atol=1e-4, rtol=0.0)
    assert set(recording._graphs) == {4}  # type: ignore[attr-defined]


@pytest.mark.gpu
@needs_gpu
def test_every_size_is_recorded_once_and_rows_without_logits_are_left_out(tmp_path: Path) -> None:
    make_checkpoint("llama", tmp_path)
    decoder = _on_gpu(tmp_path, RecordingDecoder)
    _begin(decoder)
    for _ in range(2):
        for count in (1, 2, 3):
            spans = [
                Span((7,), start, blocks, int(start != 31))
                for start, blocks in ((90, LONG), (31, SHORT), (1, THIRD))[:count]
            ]
            assert len(logits(decoder, *spans)) == count - (count > 1)
    assert sorted(decoder._graphs) == [1, 2, 4]  # type: ignore[attr-defined]


@pytest.mark.gpu
@needs_gpu
def test_steps_that_nobody_reads_leave_the_numbers_of_those_before_alone(tmp_path: Path) -> None:
    """The device is kept busy, so that copies wait while the host asks for the next steps."""
    make_checkpoint("llama", tmp_path)
    recording, plain = _on_gpu(tmp_path, RecordingDecoder), _on_gpu(tmp_path, Decoder)
    for each in (recording, plain):
        _begin(each)
        each.forward(_step(0))
    torch.cuda._sleep(200_000_000)
    for position in range(1, 8):
        recording.forward(_step(position))
    for position in range(1, 8):
        plain.forward(_step(position))
    found, wanted = recording.forward(_step(8)).clone(), plain.forward(_step(8))
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=0.0)


def _on_gpu(folder: Path, make: type[Decoder]) -> Decoder:
    config = read_config(folder)
    ops = CudaOps(config, torch.float32, BLOCK_TOKENS, DEVICE, triton_kernels())
    assert ops.replays
    with Checkpoint(folder) as checkpoint:
        weights = load_weights(checkpoint, config, ops, "float32")
    return make(config, weights, ops, CONTEXT, 64)
