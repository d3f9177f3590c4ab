"""A push declares steps; a real server takes them one after the other, and their result says so."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from support.server import ROOT
from support.yard import Yard, yard

pytestmark = pytest.mark.slow

DIGITS = ROOT / "server" / "cli" / "demo_files" / "models" / "digits"
WAIT_S = 240.0
STEPS = [
    {"type": "optimise", "data": "rows.npz"},
    {"type": "quantise", "data": "rows.npz", "method": "static", "floor": 0.5, "samples": 32},
    {"type": "rollout", "mode": "immediate"},
]


def digits(work: Path, steps: list[dict[str, Any]]) -> Path:
    """The model `digits` with version 1 and images of handwritten digits, not committed yet."""
    folder = work / "models" / "digits"
    shutil.copytree(DIGITS, folder, ignore=shutil.ignore_patterns("2"))
    pixels, labels = load_digits(return_X_y=True)
    images = (pixels[:600].reshape(-1, 1, 8, 8) / 16).astype(np.float32)
    np.savez_compressed(folder / "rows.npz", IMAGE=images, labels=labels[:600])
    (folder / "jobs.json").write_text(json.dumps({"steps": steps}, indent=2))
    return folder


def ended(y: Yard) -> dict[str, Any]:
    """The newest pipeline once it has ended."""

    def newest() -> dict[str, Any]:
        found: list[dict[str, Any]] = y.api("GET", "/pipelines")[1]["items"]
        return found[0] if found else {"state": "running"}

    y.wait_for(lambda: newest()["state"] != "running", "the pipeline to end", WAIT_S)
    return newest()


def test_pushed_steps_end_in_a_version_with_its_lineage(tmp_path: Path) -> None:
    with yard(tmp_path) as y:
        work = y.repository("vision")
        digits(work, STEPS)
        y.commit(work, "digits, optimised and quantised")
        said = y.push(work)
        pipeline = ended(y)
        assert pipeline["state"] == "done", f"{pipeline['reason']}; {said}"
        assert [one["state"] for one in pipeline["steps"]] == ["done"] * 3
        optimise, quantise, _ = pipeline["steps"]
        assert (optimise["model"], optimise["version"]) == ("digits-optimised", 1)
        assert (quantise["model"], quantise["version"]) == ("digits-int8", 1)
        status, version = y.api("GET", "/models/digits-int8/versions/1")
        assert status == 200
        lineage = version["lineage"]
        assert (lineage["job"], lineage["pipeline"]) == (quantise["job"], pipeline["id"])
        (earlier,) = lineage["earlier"]
        pushed = y.api("GET", "/models/digits/versions/1")[1]
        assert earlier == {
            "job": optimise["job"], "type": "optimise", "model": "digits", "version": 1,
            "digest": pushed["digest"],
        }  # fmt: skip
        for job in (optimise["job"], quantise["job"]):
            assert y.api("GET", f"/jobs/{job}/report")[1]["verdict"] == "accepted"
        shown = y.cli("pipeline", "show", pipeline["id"])
        assert f"2. quantise: done, digits-int8 version 1, job {quantise['job']}" in shown
        y.wait_versions("digits-int8", 1)


def test_a_wrong_declaration_refuses_the_push_by_line_and_column(tmp_path: Path) -> None:
    with yard(tmp_path) as y:
        work = y.repository("vision")
        folder = digits(work, [{"type": "quantise", "floor": 7}, {"type": "rollout"}])
        y.commit(work, "a floor that cannot be")
        said = y.push(work, ok=False)
        assert "models/digits/jobs.json:5:16 E472 step 1: floor is 7; it must be a number" in said
        (folder / "jobs.json").write_text(json.dumps({"steps": [{"type": "prune"}]}))
        y.commit(work, "code that is not allowed")
        said = y.push(work, ok=False)
        assert "jobs.json:1:12 E473 step 1 runs code" in said
        assert "--add-format python" in said
        (folder / "jobs.json").write_text(json.dumps({"steps": [{"type": "optimise"}]}))
        y.commit(work, "a token that may not")
        y.log_in("push:vision:*")
        said = y.push(work, ok=False)
        assert "jobs.json E473 its steps are jobs" in said
        assert "it lacks the scope operate" in said
        assert y.api("GET", "/pipelines")[1]["items"] == []
