"""Quantise a language model's weights: one walk over its layers, none of which is kept."""

import math
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from control.jobs.report import Figure, Plot, PlotSeries, Report
from control.jobs.specs.quantise_llm import QuantiseLlmSpec
from jobs.tools.measure.machine import cpu_name
from jobs.tools.quantise_llm.awq import scale_layer
from jobs.tools.quantise_llm.checkpoint import CheckpointReader, CheckpointWriter
from jobs.tools.quantise_llm.decoder import LayeredDecoder, linears_of
from jobs.tools.quantise_llm.gptq import NoInverseError, gptq
from jobs.tools.quantise_llm.memory import available_bytes, check_memory
from jobs.tools.quantise_llm.moments import InputMoments, MomentsOf
from jobs.tools.quantise_llm.packing import described, packed
from jobs.tools.quantise_llm.rounding import GROUP, Rounded, round_to_nearest
from jobs.tools.quantise_llm.texts import TokenTexts, read_texts
from jobs.tools.result.config import read_config, version_folder, write_config
from jobs.tools.result.provenance import digests, spec_fields, versions
from jobs.tools.work import Work, refuse

PACKAGES = ("torch", "transformers", "tokenizers", "safetensors")


def run(work: Work) -> Report:
    """Raises WorkRefused for a checkpoint or text that cannot be used."""
    spec = work.task.spec
    assert isinstance(spec, QuantiseLlmSpec)
    torch.manual_seed(work.task.seed)
    torch.set_num_threads(work.task.threads)
    work.progress(0.0, "reading the checkpoint and the text")
    source = Path(work.task.source)
    config = read_config(source)
    texts = read_texts(work.task, spec)
    output = Path(work.task.output)
    with CheckpointReader(source) as checkpoint:
        check_memory(texts, checkpoint.config, available_bytes())
        walk = _LayerWalk(work, spec, checkpoint, CheckpointWriter(version_folder(output)))
        before, after = walk.perplexities(texts)
        walk.finish()
    config.parameters["precision"].string_value = f"int{spec.bits}"
    write_config(output, config)
    return _report(work, spec, walk, before, after, texts)


class _LayerWalk:
    """Through all layers, with three streams of rows: what is calibrated with, and the held-out
    text in the original and in the quantised network."""

    def __init__(
        self,
        work: Work,
        spec: QuantiseLlmSpec,
        checkpoint: CheckpointReader,
        writer: CheckpointWriter,
    ) -> None:
        self._work = work
        self._spec = spec
        self._checkpoint = checkpoint
        self._decoder = LayeredDecoder(checkpoint)
        self.writer = writer
        self.errors: list[tuple[float, float]] = []
        self.layer_bytes = [0, 0]
        self.source_bytes = checkpoint.bytes

    def perplexities(self, texts: TokenTexts) -> tuple[float, float]:
        """Of the held-out text, before and after."""
        plain = self._decoder.embed(texts.held_out)
        quantised = plain.clone()
        calibration = self._decoder.embed(texts.calibration) if len(texts.calibration) else None
        for index in range(self._decoder.count):
            layer = self._decoder.layer(index)
            self._decoder.through(layer, plain)
            self._layer(index, layer, calibration)
            self._decoder.through(layer, quantised)
            self._decoder.drop(index)
            self._tell(index, plain, quantised)
        return (
            self._decoder.perplexity(plain, texts.held_out),
            self._decoder.perplexity(quantised, texts.held_out),
        )

    def finish(self) -> None:
        """Write what no layer has: embedding, last norm, head."""
        rest = {
            f"{prefix}{name}": tensor
            for prefix in ("model.embed_tokens.", "model.norm.", "lm_head.")
            if f"{prefix}weight" in self._checkpoint
            for name, tensor in self._checkpoint.below(prefix).items()
        }
        self.writer.add(rest)
        self.writer.finish(self._checkpoint, described(self._spec.bits, ["lm_head"]))

    def _layer(self, index: int, layer: nn.Module, calibration: Tensor | None) -> None:
        """Quantise the layer in place, and write it."""
        linears = linears_of(layer)
        _check(linears, index)
        moments: dict[str, InputMoments] = {}
        if calibration is not None:
            with MomentsOf(linears) as moments:
                self._decoder.through(layer, calibration.clone())
            if self._spec.method == "awq":
                powers = scale_layer(layer, moments, self._spec.bits)
                self._work.note(f"layer {index}: powers {powers}")
        rounded = dict(self._rounded(linears, moments, index))
        self._write(index, layer, rounded)
        with torch.no_grad():
            for name, one in rounded.items():
                linears[name].weight.copy_(one.restored())
        if calibration is not None:
            self._decoder.through(layer, calibration)

    def _rounded(
        self, linears: dict[str, nn.Linear], moments: dict[str, InputMoments], index: int
    ) -> Iterator[tuple[str, Rounded]]:
        spec = self._spec
        for name, linear in linears.items():
            weight = linear.weight.detach()
            if spec.method != "gptq":
                yield name, round_to_nearest(weight, spec.bits)
                continue
            square = moments[name].square
            try:
                yield (
                    name,
                    gptq(weight, square, spec.bits, damping=spec.damping, act_order=spec.act_order),
                )
            except NoInverseError as error:
                refuse(
                    f"layer {index}, {name}: {error}; give more or other calibration text, or a "
                    "larger 'damping'"
                )

    def _write(self, index: int, layer: nn.Module, rounded: dict[str, Rounded]) -> None:
        at = f"model.layers.{index}."
        stored = self._checkpoint.below(at)
        tensors: dict[str, Tensor] = {}
        for name, tensor in layer.state_dict().items():
            linear = name.removesuffix(".weight")
            if name.endswith(".weight") and linear in rounded:
                tensors |= packed(at + linear, rounded[linear], self._spec.bits)
            else:
                tensors[at + name] = tensor.to(stored[name].dtype)
                tensor.copy_(tensors[at + name])  # perplexity is that of what is written
        self.layer_bytes[0] += sum(one.nbytes for one in stored.values())
        self.layer_bytes[1] += sum(one.nbytes for one in tensors.values())
        self.writer.add(tensors)

    def _tell(self, index: int, plain: Tensor, quantised: Tensor) -> None:
        gap = float((plain - quantised).square().sum() / plain.square().sum())
        if not math.isfinite(gap):
            refuse(f"layer {index} gives numbers that are not finite for the held-out text")
        self.errors.append((float(index), gap))
        self._work.point("error of the stream", index, gap)
        done = (index + 1) / self._decoder.count
        self._work.progress(0.05 + 0.9 * done, f"layer {index + 1} of {self._decoder.count}")


def _check(linears: dict[str, nn.Linear], index: int) -> None:
    for name, linear in linears.items():
        if linear.in_features % GROUP:
            refuse(
                f"layer {index}, {name} has {linear.in_features} inputs; they must be a multiple "
                f"of {GROUP}"
            )


def _report(
    work: Work,
    spec: QuantiseLlmSpec,
    walk: _LayerWalk,
    before: float,
    after: float,
    texts: TokenTexts,
) -> Report:
    grown = 100 * (after / before - 1)
    refused = not grown <= spec.floor
    rows, length = texts.held_out.shape
    sentence = (
        f"perplexity of the held-out text ({rows} rows of {length} tokens) went from "
        f"{before:.4f} to {after:.4f}, {grown:+.2f} %; {spec.floor:g} % are allowed"
    )
    return Report(
        title=f"Quantise {spec.model} ({spec.method}, int{spec.bits})",
        verdict="refused" if refused else "accepted",
        reasons=(sentence,),
        warnings=_warnings(),
        figures=(
            Figure("perplexity of held-out text", "", before, after, "lower"),
            Figure("weights", "bytes", walk.source_bytes, walk.writer.bytes, "lower"),
            Figure("weights of layers", "bytes", walk.layer_bytes[0], walk.layer_bytes[1], "lower"),
        ),
        plots=(
            Plot(
                "Squared error of the stream after each layer, relative", "layer", "error",
                (PlotSeries(spec.method, tuple(walk.errors)),),
            ),
        ),
        spec=spec_fields(work.task),
        versions=versions(PACKAGES),
        digests=digests(work.task),
        cpu=cpu_name(),
    )  # fmt: skip


def _warnings() -> tuple[str, ...]:
    stays = (
        "the embedding table and the head stay as they were; the engine rounds the head when it "
        "loads, and rounds each token's numbers to 8 bits as it computes: neither is in these "
        "perplexities"
    )
    return (stays,)
