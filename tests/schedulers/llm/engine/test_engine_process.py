"""An engine in a process of its own: a chat is answered while long prompts are in progress."""

from pathlib import Path
from queue import SimpleQueue

import pytest

from repository.model import ModelVersion
from schedulers.llm.engine_messages import Message, StepReport, Submit
from schedulers.llm.gateway.instance import start_engine
from schedulers.llm.generation import GenerateRequest
from support.llm import make_checkpoint, prompt, save_tokeniser
from support.llm_served import parameters
from support.runtime import CPU, make_version

WAIT_S = 120.0


@pytest.mark.slow
def test_a_chat_beside_eight_long_prompts_is_answered_within_three_steps(tmp_path: Path) -> None:
    version = written(tmp_path)
    engine = start_engine(version, CPU, "m_0")
    try:
        said: SimpleQueue[Message] = SimpleQueue()
        engine.on_message = said.put
        longs = [asked(f"long {one}", prompt(one, 4000)) for one in range(8)]
        assert engine.post(Submit(tuple(longs)))
        next_step(said)
        assert engine.post(Submit((asked("chat", prompt(9, 30)),)))
        answered, steps = set[str](), 0
        while "chat" not in answered:
            step = next_step(said)
            answered |= {output.id for output in step.outputs}
            steps += 1 if steps or "chat" in step.started else 0
        assert answered == {"chat"}
        assert steps <= 3
    finally:
        engine.close()


def written(root: Path) -> ModelVersion:
    settings = parameters(precision="float32", memory_budget="64MiB", context=8192)
    version = make_version(root, f'backend: "llm"\n{settings}')
    make_checkpoint("llama", version.path, max_position_embeddings=8192)
    save_tokeniser(version.path)
    return version


def asked(name: str, tokens: tuple[int, ...]) -> GenerateRequest:
    return GenerateRequest(name, tokens, 4, ignore_end=True)


def next_step(said: "SimpleQueue[Message]") -> StepReport:
    while not isinstance(message := said.get(timeout=WAIT_S), StepReport):
        pass
    return message
