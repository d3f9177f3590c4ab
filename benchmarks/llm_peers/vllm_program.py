"""vLLM's engine in this process: `python vllm_program.py FOLDER THREADS`."""

import os
import sys
import time

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ["OMP_NUM_THREADS"] = sys.argv[2]
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")

from told import Arrivals, Asks, answer
from vllm import EngineArgs, LLMEngine, SamplingParams


def main() -> None:
    engine = LLMEngine.from_engine_args(
        EngineArgs(
            model=sys.argv[1], dtype="bfloat16", max_model_len=8192, max_num_seqs=64,
            max_num_batched_tokens=256, enable_prefix_caching=True, disable_log_stats=True,
        )
    )  # fmt: skip
    runs = 0

    def run(asks: Asks) -> Arrivals:
        nonlocal runs
        runs += 1
        engine.reset_prefix_cache()
        return step_through(engine, asks, f"run{runs}")

    answer(run)


def step_through(engine: LLMEngine, asks: Asks, name: str) -> Arrivals:
    for index, (prompt, count, sampling) in enumerate(asks):
        params = SamplingParams(max_tokens=count, ignore_eos=True, detokenize=True, **sampling)
        engine.add_request(f"{name}-{index}", {"prompt_token_ids": prompt}, params)
    arrivals: Arrivals = [[] for _ in asks]
    began = time.perf_counter()
    while engine.has_unfinished_requests():
        for output in engine.step():
            mine = arrivals[int(output.request_id.split("-")[1])]
            fresh = len(output.outputs[0].token_ids) - len(mine)
            mine.extend([time.perf_counter() - began] * fresh)
    return arrivals


if __name__ == "__main__":
    main()
