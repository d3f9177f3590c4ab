"""A recipe with a mistake is refused with its file, its line and what would be right."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from control.jobs.messages import Task
from control.jobs.specs.distil import DistilSpec
from control.jobs.specs.prune import PruneSpec
from jobs.tools.training.recipe import Recipe
from jobs.tools.training.version import OnnxAnswer
from jobs.tools.work import WorkRefused
from support.recipes import RECIPE
from support.tools import run_tool


def recipe_of(folder: Path, text: str, name: str = "recipe.py", **fields: object) -> Recipe:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    spec = PruneSpec(model="dots", version=1, **fields)  # type: ignore[arg-type]
    task = Task("job-1", spec, str(folder), {}, "", str(folder), str(folder), 1, 1)
    return Recipe(task, spec)


CALLS: dict[str, Callable[[Recipe], object]] = {
    "network": lambda recipe: recipe.network(),
    "batches": lambda recipe: list(recipe.batches("train", 1)),
    "accuracy": lambda recipe: recipe.accuracy(lambda images: images),
}


def reason_of(folder: Path, text: str, call: str = "network") -> str:
    with pytest.raises(WorkRefused) as refused:
        CALLS[call](recipe_of(folder, text))
    return str(refused.value)


def test_a_syntax_error_is_told_with_its_line(tmp_path: Path) -> None:
    reason = reason_of(tmp_path, "import torch\n\ndef network(version:\n    pass\n")
    assert reason.startswith("recipe.py line 3, in the file itself: SyntaxError:")


def test_an_import_that_fails_is_told_with_its_line(tmp_path: Path) -> None:
    reason = reason_of(tmp_path, "import torch\nimport no_such_package\n")
    assert reason == (
        "recipe.py line 2, in the file itself: ModuleNotFoundError: No module named "
        "'no_such_package'"
    )


def test_a_missing_function_is_named(tmp_path: Path) -> None:
    assert reason_of(tmp_path, "x = 1\n") == (
        "recipe.py has no function 'network'; docs/recipes.md says what it gives"
    )


def test_a_function_that_raises_is_told_with_the_line_in_the_recipe(tmp_path: Path) -> None:
    text = "import torch\ndef network(version):\n    return torch.load(version / 'none.pt')\n"
    assert reason_of(tmp_path, text).startswith("recipe.py line 3, in network: FileNotFoundError:")


def test_a_module_beside_the_recipe_is_named_where_it_raises(tmp_path: Path) -> None:
    (tmp_path / "layers_of_ours.py").write_text("def make():\n    raise KeyError('depth')\n")
    text = "import layers_of_ours\ndef network(version):\n    return layers_of_ours.make()\n"
    assert reason_of(tmp_path, text) == "layers_of_ours.py line 2, in network: KeyError: 'depth'"


def test_leaving_the_process_is_refused_too(tmp_path: Path) -> None:
    text = "import sys\ndef network(version):\n    sys.exit(3)\n"
    assert reason_of(tmp_path, text) == "recipe.py line 3, in network: SystemExit: 3"


def test_other_arguments_are_refused(tmp_path: Path) -> None:
    reason = reason_of(tmp_path, "\ndef network():\n    pass\n")
    assert reason.startswith("recipe.py line 2: network does not take the 1 arguments")


def test_what_is_no_network_is_described(tmp_path: Path) -> None:
    reason = reason_of(tmp_path, "def network(version):\n    return {'a': 1}\n")
    assert reason == "recipe.py: network must give a torch.nn.Module, not dict {'a': 1}"


def test_batches_without_rows_are_described(tmp_path: Path) -> None:
    text = "import torch\ndef batches(split, data, seed):\n    yield torch.tensor(1.0), 'cat'\n"
    assert "not tuple of a tensor float32 [], str 'cat'" in reason_of(tmp_path, text, "batches")


def test_no_batch_at_all_is_refused(tmp_path: Path) -> None:
    text = "def batches(split, data, seed):\n    return []\n"
    assert reason_of(tmp_path, text, "batches") == "recipe.py: batches('train') gave no batch"


def test_a_generator_that_raises_midway_is_told_with_its_line(tmp_path: Path) -> None:
    text = (
        "import torch\ndef batches(split, data, seed):\n"
        "    yield torch.zeros(2, 3), torch.zeros(2)\n    raise OSError('disk')\n"
    )
    assert reason_of(tmp_path, text, "batches") == "recipe.py line 4, in batches: OSError: disk"


def test_outputs_that_are_no_classes_need_an_evaluate(tmp_path: Path) -> None:
    text = (
        "import torch\ndef batches(split, data, seed):\n"
        "    yield torch.zeros(2, 3, 4), torch.zeros(2)\n"
    )
    reason = reason_of(tmp_path, text, "accuracy")
    assert "the network gave a tensor float32 [2, 3, 4] for targets a tensor float32 [2]" in reason
    assert "evaluate" in reason


def test_a_single_column_is_no_class(tmp_path: Path) -> None:
    text = (
        "import torch\ndef batches(split, data, seed):\n"
        "    yield torch.zeros(2, 1), torch.zeros(2)\n"
    )
    reason = reason_of(tmp_path, text, "accuracy")
    assert "of two classes or more" in reason
    assert "write evaluate(answer, data)" in reason


def test_an_accuracy_that_is_no_share_is_refused(tmp_path: Path) -> None:
    text = "def evaluate(answer, data):\n    return 98.5\n"
    assert reason_of(tmp_path, text, "accuracy") == (
        "recipe.py: evaluate must give a share from 0 to 1, not float 98.5"
    )


def test_a_recipe_outside_the_folders_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkRefused, match=r"'\.\./recipe\.py'; it must be a path below"):
        recipe_of(tmp_path, "", recipe="../recipe.py")


def test_a_recipe_that_is_not_there_is_refused_with_what_is(tmp_path: Path) -> None:
    with pytest.raises(WorkRefused, match=r"there is no 'tune\.py' .*\(it has recipe\.py\)"):
        recipe_of(tmp_path, "", recipe="tune.py")


def test_a_file_that_does_not_take_the_batch_is_told_its_shapes(dots: Path) -> None:
    import torch

    answer = OnnxAnswer(dots / "model.onnx", "model 'dots' version 1", 1)
    with pytest.raises(WorkRefused, match=r"does not take .* \(float32 \[2, 3, 8, 8\]\)"):
        answer(torch.zeros(2, 3, 8, 8))


MISTAKES = {
    "another network": (
        ('made.load_state_dict(torch.load(version / "weights.pt", weights_only=True))', "pass"),
        "does not answer as model 'dots' version 1 does",
    ),
    "a loss that is no number": (
        (
            "def student",
            "def loss(outputs, targets):\n    return outputs.sum() * float('nan')\n\n\ndef student",
        ),
        "the loss is nan at training step 1",
    ),
    "a student of another shape": (
        ("return _layers(8, 12)", "return nn.Sequential(nn.Flatten(), nn.Linear(64, 9))"),
        "the student gives [32, 9] where the teacher gives [32, 10]",
    ),
    "a student that is no network of these inputs": (
        ("return _layers(8, 12)", "return nn.Linear(7, 10)"),
        "in forward of its network: RuntimeError: mat1 and mat2 shapes cannot be multiplied",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_ends_the_tool_with_a_reason(mistake: str, dots: Path, tmp_path: Path) -> None:
    (written, instead), reason = MISTAKES[mistake]
    shutil.copytree(dots, tmp_path / "version")
    assert written in RECIPE
    (tmp_path / "version" / "recipe.py").write_text(RECIPE.replace(written, instead))
    fields = {"model": "dots", "version": 1, "epochs": 1}
    spec = DistilSpec(**fields) if "student" in mistake else PruneSpec(**fields)  # type: ignore[arg-type]
    run = run_tool(tmp_path / "run", spec, tmp_path / "version")
    assert reason in run.refusal
