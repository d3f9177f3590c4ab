"""transformers' own generation: one by one, in static batches, or with continuous batching.

`python transformers_program.py FOLDER THREADS MODE`, MODE a batch size or "continuous". In
bfloat16, or in float32 on a CPU that has no products of bfloat16: several times as fast there.
Always greedy, which is the fastest.
"""

import sys
from pathlib import Path
from typing import Any

import torch
from told import Arrivals, Asks, answer
from transformers import AutoModelForCausalLM, GenerationConfig


def main() -> None:
    folder, threads, mode = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(threads)
    bfloat16 = "avx512_bf16" in Path("/proc/cpuinfo").read_text()
    dtype = torch.bfloat16 if bfloat16 else torch.float32
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    model = model.eval()
    if mode == "continuous":
        answer(lambda asks: continuous(model, asks))
    else:
        answer(lambda asks: static(model, asks, int(mode)))


@torch.inference_mode()
def static(model: Any, asks: Asks, batch: int) -> Arrivals:
    """Padded on the left; a batch lasts as long as its longest answer."""
    for first in range(0, len(asks), batch):
        part = asks[first : first + batch]
        longest = max(len(prompt) for prompt, _, _ in part)
        padded = [[0] * (longest - len(prompt)) + prompt for prompt, _, _ in part]
        seen = [[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt, _, _ in part]
        most = max(count for _, count, _ in part)
        model.generate(
            torch.tensor(padded), attention_mask=torch.tensor(seen), do_sample=False,
            max_new_tokens=most, min_new_tokens=most,
        )  # fmt: skip
    return []


def continuous(model: Any, asks: Asks) -> Arrivals:
    """`generate_batch` knows one length for all: the mean of what the asks want."""
    mean = round(sum(count for _, count, _ in asks) / len(asks))
    config = GenerationConfig(
        max_new_tokens=mean, do_sample=False, eos_token_id=-1, num_blocks=512, block_size=32,
        max_batch_tokens=256,
    )  # fmt: skip
    answers = model.generate_batch(
        inputs=[prompt for prompt, _, _ in asks], generation_config=config, progress_bar=False
    )
    told = [len(one.generated_tokens) for one in answers.values()]
    if told != [mean] * len(asks):
        raise RuntimeError(f"generate_batch gave {told} tokens instead of {mean} each")
    return []


if __name__ == "__main__":
    main()
