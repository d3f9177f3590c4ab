"""A checkpoint's generation_config.json is how its model answers where a request does not say."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from admin_ui.pages.version import sampling_of
from backends.errors import LoadFailed
from backends.llm.backend import examine
from backends.llm.sampling.params import SamplingParams
from schedulers.llm.gateway.language import Language, read_language
from schedulers.llm.gateway.llm_request import read_llm_request
from schedulers.request import InferRequest
from server.openai.answers.completion_choice import CompletionChoice
from server.openai.bodies.chat import read_chat
from server.openai.bodies.completions import read_completion
from server.openai.bodies.options import GenerationOptions
from server.openai.generation_run import requests_for
from support.llm import make_checkpoint, save_tokeniser
from support.runtime import make_version

FILE: dict[str, Any] = {
    "do_sample": False,
    "eos_token_id": [2, 7],
    "max_new_tokens": 50,
    "repetition_penalty": 1.05,
    "temperature": 0.6,
    "top_k": 20,
    "top_p": 0.95,
}
OF_FILE = SamplingParams(temperature=0.6, top_k=20, top_p=0.95, repetition_penalty=1.05)
MESSAGES = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("model")
    make_checkpoint("llama", made / "m" / "1")
    save_tokeniser(made / "m" / "1")
    return made


def config_of(**settings: object) -> str:
    return 'backend: "llm"\n' + "".join(
        f'parameters {{ key: "{name}" value {{ string_value: "{value}" }} }}\n'
        for name, value in settings.items()
    )


def language(folder: Path, written: object = None, **settings: object) -> Language:
    version = make_version(folder, config_of(**settings))
    (version.path / "generation_config.json").write_text(json.dumps(written or FILE))
    return read_language(version)


def chat(language: Language, **fields: Any) -> tuple[SamplingParams, int]:
    asked = read_chat({"model": "m", "messages": MESSAGES, **fields}).options
    return _made(asked, language)


def _made(asked: GenerationOptions, language: Language) -> tuple[SamplingParams, int]:
    options = asked.with_defaults(language.defaults)
    (request,) = requests_for([CompletionChoice((5, 6), False)], options, language, None)
    return request.sampling, request.max_tokens


def test_a_request_that_says_nothing_is_answered_as_the_checkpoint_says(folder: Path) -> None:
    model = language(folder)
    assert chat(model) == (OF_FILE, 50)
    assert model.end_ids == (2, 7)
    completion = read_completion({"model": "m", "prompt": "x"}).options
    assert _made(completion, model) == (OF_FILE, 16)


def test_what_a_request_says_wins_also_where_it_says_the_usual(folder: Path) -> None:
    said = {"temperature": 1.0, "top_p": 1, "top_k": -1, "repetition_penalty": 1, "max_tokens": 9}
    assert chat(language(folder), **said) == (SamplingParams(), 9)
    assert chat(language(folder), temperature=None, top_k=3)[0].temperature == 0.6


def test_parameters_of_the_config_win_over_the_file(folder: Path) -> None:
    found = chat(language(folder, temperature=0, max_tokens=7, min_p="0.1"))
    wanted = SamplingParams(0.0, 20, 0.95, min_p=0.1, repetition_penalty=1.05)
    assert found == (wanted, 7)
    assert chat(language(folder, generation_config="ignore", top_k=5))[0] == SamplingParams(top_k=5)


def test_the_default_length_leaves_room_for_the_prompt_and_the_minimum(folder: Path) -> None:
    model = language(folder, {"max_new_tokens": 100_000})
    assert chat(model)[1] == model.context - 2
    assert chat(language(folder), min_tokens=60)[1] == 60


def test_triton_s_way_of_asking_has_the_same_defaults(folder: Path) -> None:
    model = language(folder)
    inputs = {"text_input": np.array([b"fox"], object)}
    request = InferRequest("m", 1, inputs, 1, None, 0)
    asked = read_llm_request(request, model).tokenised(((5, 6),)).requests[0]
    assert (asked.sampling, asked.max_tokens) == (OF_FILE, 16)
    request.parameters = {"temperature": 0, "max_tokens": 3}
    asked = read_llm_request(request, model).tokenised(((5, 6),)).requests[0]
    assert (asked.sampling.temperature, asked.sampling.top_k, asked.max_tokens) == (0.0, 20, 3)


@pytest.mark.parametrize(
    ("written", "settings", "message"),
    [
        ({"top_p": 0}, {}, "generation_config.json: 'top_p' is 0; it must be a number from"),
        ({"temperature": "warm"}, {}, "'temperature' is 'warm'; it must be a number from 0 to 100"),
        ({"max_new_tokens": 1.5}, {}, "'max_new_tokens' is 1.5; it must be a whole number"),
        ({}, {"top_k": "few"}, "parameter top_k is 'few'; it must be a whole number from 0"),
        ({}, {"generation_config": "no"}, "parameter generation_config is 'no'; it must be one of"),
    ],
)
def test_a_default_that_cannot_be_is_refused_by_name(
    written: dict[str, Any], settings: dict[str, object], message: str, folder: Path
) -> None:
    version = make_version(folder, config_of(**settings))
    (version.path / "generation_config.json").write_text(json.dumps(written))
    with pytest.raises(LoadFailed) as refused:
        examine(version)
    assert message in str(refused.value)


def test_a_wrong_number_in_the_file_does_not_count_where_it_is_not_wanted(folder: Path) -> None:
    assert chat(language(folder, {"top_p": 0}, top_p="0.5"))[0].top_p == 0.5
    assert chat(language(folder, {"top_p": 0}, generation_config="ignore"))[0].top_p == 1.0


def test_the_console_shows_what_holds() -> None:
    config = config_of(temperature=0, max_tokens=7).replace('"llm"', '"llm"\nname: "m"')
    found = sampling_of(config, json.dumps(FILE))
    assert (found["temperature"], found["top_k"], found["max_tokens"]) == (0.0, 20, 7)
    assert sampling_of("", json.dumps({"top_k": 3})) == {"top_k": 3}
    assert sampling_of("", "no JSON") == {}
    assert sampling_of('backend: "onnxruntime"', json.dumps(FILE)) == {}
