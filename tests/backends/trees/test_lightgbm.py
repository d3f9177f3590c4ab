"""Boosters of LightGBM answer as the library itself does."""

from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pytest

from backends.errors import LoadFailed
from backends.trees.lightgbm import LightGbm
from support.runtime import CPU, batch_of, make_version, member, with_config

ROWS = np.random.default_rng(3).random((200, 5))
CLASSES = (ROWS[:, 0] * 3).astype(int)
QUIET = {"verbosity": -1, "num_threads": 1}


def trained(**options: Any) -> Any:
    target = CLASSES > 0 if options["objective"] == "binary" else CLASSES
    return lightgbm.train({**QUIET, **options}, lightgbm.Dataset(ROWS, target), 4)


@pytest.mark.parametrize(
    ("options", "columns"),
    [
        ({"objective": "regression"}, 1),
        ({"objective": "binary"}, 1),
        ({"objective": "multiclass", "num_class": 3}, 3),
    ],
)
def test_a_booster_without_a_config_answers_as_lightgbm_does(
    options: dict[str, Any], columns: int, tmp_path: Path
) -> None:
    booster, version = trained(**options), make_version(tmp_path)
    booster.save_model(version.path / "model.txt")
    rows = ROWS[:7].astype(np.float32)
    rows[0, 0] = np.nan

    version = with_config(version, LightGbm().complete(version, 4))
    (instance,) = LightGbm().load(version, CPU, 1).instances
    (result,) = instance.execute(batch_of(member(input__0=rows))).results

    assert [list(tensor.dims) for tensor in version.config.output] == [[columns]]
    native = booster.predict(rows).reshape(7, columns)
    np.testing.assert_allclose(result["output__0"], native, rtol=1e-12)  # type: ignore[index,call-overload]


@pytest.mark.parametrize("text", ["one\ntwo\n", "tree\nversion=v4\nnum_class=3\n"])
def test_a_file_that_is_no_booster_is_refused(text: str, tmp_path: Path) -> None:
    version = make_version(tmp_path)
    (version.path / "model.txt").write_text(text)
    with pytest.raises(LoadFailed, match=r"model\.txt is not a model that LightGBM reads"):
        LightGbm().complete(version, 4)
