"""A language model pushed with git: checked on the way in, served, refused with the reason."""

import json
from pathlib import Path

import pytest

from support.llm_served import GREEDY, generate, parameters, write_language_model
from support.yard import yard

PROMPT = "Once upon a time"


@pytest.mark.slow
def test_a_pushed_checkpoint_is_served_and_a_broken_one_refused_on_the_terminal(
    tmp_path: Path,
) -> None:
    with yard(tmp_path) as here:
        work = here.repository()
        models = work / "models"
        write_language_model(models, "tiny", parameters(precision="float32", threads=1))
        here.commit(work, "a language model")
        here.push(work)
        here.wait_versions("tiny", 1, seconds=90)
        assert generate(here.server, "tiny", PROMPT, max_tokens=3, **GREEDY)[0] == 200
        config = models / "tiny" / "1" / "config.json"
        fields = json.loads(config.read_text())
        config.write_text(json.dumps(fields | {"num_hidden_layers": 3}))
        here.commit(work, "a layer too many")
        said = here.push(work, ok=False)
        assert "lacks the tensor 'model.layers.2." in said
        assert here.versions("tiny") == [1]
