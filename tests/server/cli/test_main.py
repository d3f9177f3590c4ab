"""The command line as a person meets it: help, mistakes, exit status."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from server.cli.help import serve_help
from server.cli.main import make_parser
from server.settings.table import TABLE
from support import preloaded

ROOT = Path(__file__).resolve().parents[3]


def modelyard(*arguments: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    return preloaded.run(arguments, environment, folder)


def refusal(*arguments: str, folder: Path = ROOT) -> str:
    """The one line on stderr of a command line that is refused with status 2."""
    ran = modelyard(*arguments, folder=folder)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("modelyard: ")
    assert ran.stderr.count("\n") == 1
    return ran.stderr


def test_version_is_one_line() -> None:
    command = [sys.executable, "-m", "server.cli", "version"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == "modelyard 0.1.0\n"


def test_no_command_shows_the_commands() -> None:
    ran = modelyard()
    assert ran.returncode == 0
    assert all(command in ran.stdout for command in ("serve", "check", "version"))


def test_help_shows_every_flag_its_default_and_examples() -> None:
    text = modelyard("serve", "--help").stdout
    assert all(row.flag in text for row in TABLE)
    assert "[8000]" in text
    assert "modelyard serve --config production.toml" in text


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_help_fits_the_terminal(width: int) -> None:
    too_long = [line for line in serve_help(width).splitlines() if len(line) > width]
    assert all(line.startswith("  --") and width < 60 for line in too_long)


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import contextlib, io, sys, server.cli.main\n"
        "with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):\n"
        "    server.cli.main.main(['serve', '--help'])\n"
        "print(sorted({'numpy', 'grpc', 'google', 'uvicorn', 'asyncio'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", program]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=180)
    assert ran.stdout == "[]\n"


def test_unknown_flag_names_the_nearest() -> None:
    assert "'--htp-port'; did you mean '--http-port'?" in refusal("serve", "--htp-port", "1")


def test_abbreviated_flag_is_not_taken_for_another() -> None:
    assert "there is no flag '--http-p'" in refusal("serve", "--http-p", "1")


def test_unknown_command_names_the_nearest() -> None:
    assert refusal("srve") == (
        "modelyard: there is no command 'srve'; did you mean 'serve'? (see modelyard --help)\n"
    )
    assert "no command 'lst'; did you mean 'list'? (see modelyard user --help)" in refusal(
        "user", "lst"
    )


def test_a_flag_before_its_command_is_told_where_it_stands() -> None:
    assert "no flag '--json' here; a command's flags stand behind it" in refusal(
        "--json", "user", "list"
    )


def test_a_number_that_is_none_is_told_without_names_of_types() -> None:
    assert "argument VERSION: 'two' is not a whole number" in refusal(
        "alias", "set", "m", "a", "two"
    )


def test_help_and_version_may_be_asked_for_in_either_way() -> None:
    assert modelyard("help", "user", "add").stdout == modelyard("user", "add", "--help").stdout
    assert modelyard("help").stdout == modelyard("--help").stdout == modelyard().stdout
    assert modelyard("--version").stdout == modelyard("version").stdout


def test_value_that_is_not_allowed_is_refused() -> None:
    message = refusal("serve", "--http-port", "99999")
    assert message == "modelyard: --http-port: '99999' is not a whole number from 0 to 65535\n"


def test_queue_of_a_worker_that_no_job_can_have_is_refused() -> None:
    assert "'a/b'" in refusal("worker", "--queues", "default,a/b")


def test_repository_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    message = refusal("serve", folder=tmp_path)
    assert "model repository 'models' (default) is not a folder" in message
    assert str(tmp_path / "models") in message


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--strict-readiness"], "true"),
        (["--strict-readiness=false"], "false"),
        (["--strict-readiness", "false"], "false"),
        (["--strict-readiness", "--http-port=9000"], "true"),
    ],
)
def test_boolean_flags_take_every_spelling(arguments: list[str], expected: str) -> None:
    given = make_parser().parse_args(["serve", *arguments])
    assert given.strict_readiness == expected


@pytest.mark.parametrize(
    "arguments",
    [
        ["--default-max-batch-size=16"],
        ["--backend-config=default-max-batch-size=16"],
        ["--backend-config", "onnxruntime,default-max-batch-size=16"],
    ],
)
def test_default_batch_size_may_be_spelled_as_in_triton(arguments: list[str]) -> None:
    assert make_parser().parse_args(["serve", *arguments]).default_max_batch_size == "16"


def test_other_backend_config_is_refused_with_what_is_known() -> None:
    message = refusal("serve", "--backend-config", "tensorrt,coalesce=1")
    assert "'tensorrt,coalesce=1' is not known" in message
    assert "default-max-batch-size=N" in message


def test_repeated_flags_add_up() -> None:
    arguments = ["serve", "--model-repository", "a", "--model-repository=b"]
    assert make_parser().parse_args(arguments).model_repository == ["a", "b"]


def model(folder: Path, config: str) -> Path:
    """A repository with one identity model."""
    (folder / "models" / "echo" / "1").mkdir(parents=True)
    (folder / "models" / "echo" / "1" / "about.txt").write_text("answers what it is asked")
    (folder / "models" / "echo" / "config.pbtxt").write_text(config)
    return folder / "models"


GOOD = """\
name: "echo"
backend: "identity"
input { name: "INPUT0" data_type: TYPE_FP32 dims: [ 16 ] }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 16 ] }
"""


def test_check_of_a_good_repository_finds_nothing(tmp_path: Path) -> None:
    ran = modelyard("check", str(model(tmp_path, GOOD)))
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("no findings in ")


def test_check_names_file_line_column_and_code(tmp_path: Path) -> None:
    repository = model(tmp_path, GOOD + "max_batch_size: -4\n")
    ran = modelyard("check", str(repository))
    assert ran.returncode == 1
    first, *_, last = ran.stdout.splitlines()
    assert first.startswith(f"{repository}/echo/config.pbtxt:5:")
    assert " E103 " in first
    assert last == f"1 finding in {repository}"


def test_check_notes_what_has_no_effect_and_is_content(tmp_path: Path) -> None:
    folder = model(tmp_path, GOOD)
    config = next(folder.rglob("config.pbtxt"))
    config.write_text(
        config.read_text() + "optimization { graph { level: 1 } eager_batching: true }"
    )
    ran = modelyard("check", str(folder))
    *notes, last = ran.stdout.splitlines()
    assert (ran.returncode, last) == (0, f"no findings in {folder} (2 notes)")
    assert "optimization.graph.level has no effect with the backend 'identity'" in notes[0]
    assert "optimization.eager_batching has no effect here: it is always so" in notes[1]


def test_check_as_json_tells_the_same_and_of_steps_that_cannot_be_followed(tmp_path: Path) -> None:
    repository = model(tmp_path, GOOD + "max_batch_size: -4\n")
    (repository / "echo" / "jobs.json").write_text('{"steps":\n [{"type": "shrink"}]}')
    ran = modelyard("check", "--json", str(repository))
    assert ran.returncode == 1
    config, steps = json.loads(ran.stdout)
    assert config["path"] == f"{repository}/echo/config.pbtxt"
    assert (config["line"], config["code"]) == (5, "E103")
    assert steps["path"] == f"{repository}/echo/jobs.json"
    assert (steps["line"], steps["code"]) == (2, "E472")


def test_check_of_a_single_model_reads_its_artefact(tmp_path: Path) -> None:
    folder = tmp_path / "broken"
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "model.onnx").write_bytes(b"this is no model")
    ran = modelyard("check", str(folder))
    assert ran.returncode == 1
    assert ran.stdout.startswith(f"{folder}/1 E300 model 'broken' version 1")


def test_check_names_a_model_that_stands_in_two_repositories(tmp_path: Path) -> None:
    one, two = model(tmp_path / "one", GOOD), model(tmp_path / "two", GOOD)
    ran = modelyard("check", str(one), str(two))
    assert ran.returncode == 1
    assert f"{two}/echo E205 model 'echo' is in '{one}' too" in ran.stdout


def test_check_of_a_path_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    assert "is not a folder" in refusal("check", str(tmp_path / "nowhere"))
