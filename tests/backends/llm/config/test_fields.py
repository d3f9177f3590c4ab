"""The JSON files of a checkpoint are read whole, so they are bounded before they are."""

from pathlib import Path

import pytest

from backends.llm.config.fields import MAX_CONTAINERS, MAX_VALUES, read_fields
from backends.llm.errors import BadCheckpoint


@pytest.mark.parametrize(
    ("piece", "count", "reason"),
    [
        ("[],", MAX_CONTAINERS, "config.json has more than 262144 arrays and objects"),
        ("{},", MAX_CONTAINERS, "config.json has more than 262144 arrays and objects"),
        ("0,", MAX_VALUES, "config.json has more than 2097152 values"),
    ],
)
def test_json_that_becomes_millions_of_objects_is_refused_unread(
    tmp_path: Path, piece: str, count: int, reason: str
) -> None:
    path = tmp_path / "config.json"
    path.write_text(f'{{"x": [{piece * (count + 1)}0]}}')
    with pytest.raises(BadCheckpoint, match=reason):
        read_fields(path)


def test_a_list_of_sixty_thousand_tokens_is_read(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer_config.json"
    tokens = ",".join(f'"{number}": {{"content": "<{number}>"}}' for number in range(65_536))
    path.write_text(f'{{"added_tokens_decoder": {{{tokens}}}}}')
    assert len(read_fields(path).values["added_tokens_decoder"]) == 65_536
