"""Weights are used where they are mapped only from files that nobody changes."""

from pathlib import Path

import pytest

from backends.errors import LoadFailed
from server.fleet.version_origin import is_operators, refuse_mapped_weights
from server.settings.table import Settings
from support.runtime import make_version

MAPPED = 'parameters {{ key: "mapped_weights" value {{ string_value: "{}" }} }}'


def test_mapped_weights_are_refused_in_a_folder_that_may_be_written_to(tmp_path: Path) -> None:
    models, state = tmp_path / "models", tmp_path / "state"
    settings = Settings(model_repository=(models,), state_dir=state)
    with pytest.raises(LoadFailed, match=r"'m' version 1: parameter mapped_weights is '1'.*push"):
        refuse_mapped_weights(make_version(models, MAPPED.format(1)), settings)
    refuse_mapped_weights(make_version(models, MAPPED.format(0)), settings)
    stored = make_version(settings.store_folder / "snapshots" / "ab", MAPPED.format(1))
    assert not is_operators(stored, settings)
    refuse_mapped_weights(stored, settings)
