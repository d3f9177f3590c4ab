"""Findings of a whole folder."""

from pathlib import Path

from repository.lint import lint
from support.repository import CONFIG, put_model


def codes(path: Path) -> list[str]:
    return sorted(finding.code for finding in lint(path))


def test_a_good_repository_and_a_good_model_have_no_findings(tmp_path: Path):
    folder = put_model(tmp_path, "m", 1)
    put_model(tmp_path, "lone", 1, config=None)
    assert lint(tmp_path) == []
    assert lint(folder) == []


def test_a_single_model_folder_is_told_from_a_repository(tmp_path: Path):
    folder = put_model(tmp_path, "m", 1, config='name: "other"')
    put_model(tmp_path, "also_bad", 1, config="nam: 1")
    assert codes(folder) == ["E110"]
    assert codes(tmp_path) == ["E102", "E110"]


def test_a_model_folder_without_config_is_linted_as_a_model(tmp_path: Path):
    folder = put_model(tmp_path, "m", 1, config=None)
    (folder / "v2").mkdir()
    assert codes(folder) == ["E208"]


def test_a_model_file_outside_a_version_folder_has_a_place(tmp_path: Path):
    (tmp_path / "net.onnx").write_text("x")
    (put_model(tmp_path, "flat") / "net.onnx").write_text("x")
    checkpoint = put_model(tmp_path, "chat", config=None)
    for name in ("config.json", "model.safetensors"):
        (checkpoint / name).write_text("x")
    (tmp_path / "README.md").write_text("x")
    assert [(f.code, f.message.rpartition("; ")[2]) for f in lint(tmp_path)] == [
        ("E201", "move its files to 'chat/1/'"),
        ("E201", "move 'net.onnx' to 'flat/1/model.onnx'"),
        ("E211", "move 'net.onnx' to 'net/1/model.onnx'"),
    ]


def test_structure_findings_are_all_found(tmp_path: Path):
    put_model(tmp_path, "no_versions")
    put_model(tmp_path, "policy", 1, config="version_policy { specific { versions: 9 } }")
    (put_model(tmp_path, "hollow", 1, config="backend: 'python'") / "2").mkdir()
    (put_model(tmp_path, "zeros", 1) / "01").mkdir()
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "todo").write_text("x")
    assert codes(tmp_path) == ["E201", "E202", "E204", "E208", "E209"]


def test_missing_label_and_warmup_files_are_found_at_their_line(tmp_path: Path):
    config = (
        'output { name: "OUT"\n  label_filename: "labels.txt" }\n'
        'model_warmup { inputs { key: "IN" value { data_type: TYPE_FP32 dims: 1\n'
        '  input_data_file: "sample" } } }'
    )
    folder = put_model(tmp_path, "m", 1, config=config)
    assert [(f.code, f.line, f.column) for f in lint(folder)] == [("E203", 2, 3), ("E203", 3, 16)]
    for name in ("a" * 300, "a/" * 1300 + "a"):
        (folder / "config.pbtxt").write_text(config.replace("labels.txt", name))
        assert [f.code for f in lint(folder)] == ["E203", "E203"]
    (folder / "config.pbtxt").write_text(config)
    (folder / "labels.txt").write_text("zero")
    (folder / "warmup").mkdir()
    (folder / "warmup" / "sample").write_bytes(b"0000")
    assert lint(folder) == []


def test_a_bad_config_does_not_hide_the_structure(tmp_path: Path):
    put_model(tmp_path, "m", config=CONFIG + "max_batch_size: 4")
    assert codes(tmp_path) == ["E106", "E201"]


def test_a_path_that_is_not_there_is_a_finding(tmp_path: Path):
    assert codes(tmp_path / "nowhere") == ["E200"]


def test_the_current_folder_may_be_a_model(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(put_model(tmp_path, "m", 1, config='name: "other"'))
    assert codes(Path()) == ["E110"]


def test_a_model_that_needs_no_file_may_have_an_empty_version_as_it_may_to_serve(tmp_path: Path):
    (put_model(tmp_path, "m", 1) / "2").mkdir()
    assert codes(tmp_path) == []


def test_requirements_of_a_python_model_are_read_whatever_its_file_is_called(tmp_path: Path):
    other = "backend: 'python' default_model_filename: 'serve.py'"
    by_name = "default_model_filename: 'serve.py' max_batch_size: 1"
    for name, config, file in (
        ("other", other, "serve.py"),
        ("by_name", by_name, "serve.py"),
        ("usual", None, "model.py"),
        ("onnx", "backend: 'onnxruntime'", "model.onnx"),
    ):
        version = put_model(tmp_path, name, 1, config=config) / "1"
        (version / file).write_text("x")
        (version / "requirements.txt").write_text("six\n-r /etc/passwd\n")
    assert [(f.code, f.path.parent.parent.name, f.line) for f in lint(tmp_path)] == [
        ("E303", name, 2) for name in ("by_name", "other", "usual")
    ]
