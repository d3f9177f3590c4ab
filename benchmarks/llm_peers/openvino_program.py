"""OpenVINO GenAI's continuous batching: `python openvino_program.py FOLDER THREADS`.

FOLDER is what `optimum-cli export openvino` wrote. Activations quantised in groups of 64 and a
bfloat16 cache served best on a CPU without AMX; the defaults are slower. On a CPU without bfloat16
the cache is float32: OpenVINO takes no other there.
"""

import sys
import time
from pathlib import Path

import numpy as np
import openvino as ov
import openvino_genai as genai
from told import Arrivals, Asks, answer


def main() -> None:
    scheduler = genai.SchedulerConfig()
    scheduler.cache_size = 2
    scheduler.max_num_batched_tokens = 256
    scheduler.max_num_seqs = 64
    scheduler.dynamic_split_fuse = True
    options = {
        "INFERENCE_NUM_THREADS": int(sys.argv[2]),
        "KV_CACHE_PRECISION": "bf16" if multiplies_bfloat16() else "f32",
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": "64",
    }
    pipeline = genai.ContinuousBatchingPipeline(sys.argv[1], scheduler, "CPU", options)
    answer(lambda asks: step_through(pipeline, asks))


def multiplies_bfloat16() -> bool:
    return "avx512_bf16" in Path("/proc/cpuinfo").read_text()


def step_through(pipeline: genai.ContinuousBatchingPipeline, asks: Asks) -> Arrivals:
    handles = []
    for index, (prompt, count, sampling) in enumerate(asks):
        chance = {"do_sample": True, **sampling} if sampling["temperature"] else {}
        config = genai.GenerationConfig(
            max_new_tokens=count, min_new_tokens=count, ignore_eos=True, **chance
        )
        tokens = ov.Tensor(np.array([prompt], np.int64))
        handles.append(pipeline.add_request(index, tokens, config))
    arrivals: Arrivals = [[] for _ in asks]
    began = time.perf_counter()
    while pipeline.has_non_finished_requests():
        pipeline.step()
        now = time.perf_counter() - began
        for handle, mine in zip(handles, arrivals, strict=True):
            while handle.can_read():
                for output in handle.read().values():
                    mine.extend([now] * len(output.generated_ids))
    return arrivals


if __name__ == "__main__":
    main()
