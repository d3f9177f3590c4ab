"""The command `tritonserver`: Triton's flags, and what becomes of each."""

import asyncio
import json
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from docs.write_triton_flags import PAGE, up_to_date
from repository.folders.snapshot import Scanner, scan
from server.cli.tritonserver import TritonCommand, help_text, main, read_command
from server.metrics.exposition import render
from server.metrics.version_families import VersionTexts
from server.process.loop_lag import LoopLag
from server.settings import trace_config
from server.settings.metrics_config import MetricsConfig, parse
from server.settings.table import SettingsError
from server.settings.triton_flags import (
    GROUPS,
    IGNORED,
    OURS,
    TRANSLATED,
    FlagSupport,
    fate,
)
from support.grpc import IDENTITY, Shelf, put
from support.server import ROOT, Server, free_ports, running, write_identity

TRITONS = [flag for flags in GROUPS.values() for flag in flags]
DOORS = ("http", "grpc", "metrics")


def read(tmp_path: Path, *arguments: str, **environment: str) -> TritonCommand:
    return read_command(["--model-repository", str(tmp_path), *arguments], environment, tmp_path)


def refusal(tmp_path: Path, *arguments: str) -> str:
    with pytest.raises(SettingsError) as caught:
        read(tmp_path, *arguments)
    return str(caught.value)


def test_page_says_what_the_code_does() -> None:
    assert PAGE.read_text() == up_to_date(), "run ./dev fix"


@pytest.mark.parametrize("flag", TRITONS)
def test_every_flag_of_triton_has_exactly_one_fate_and_is_helped(flag: str) -> None:
    homes = [flag in TRANSLATED, flag in IGNORED]
    assert sum(homes) == 1 or (flag in OURS and flag not in TRANSLATED)
    assert f"--{flag}" in help_text()


def test_tables_name_only_flags_of_triton() -> None:
    assert {*TRANSLATED, *IGNORED} <= set(TRITONS)
    assert len(TRITONS) == len(set(TRITONS))


@pytest.mark.parametrize("flag", [one for one in TRITONS if fate(one) is FlagSupport.IGNORED])
def test_flag_without_meaning_is_accepted_and_told(tmp_path: Path, flag: str) -> None:
    command = read(tmp_path, f"--{flag}=1")
    assert any(note.startswith(f"--{flag} has no effect: ") for note in command.notes)


@pytest.mark.parametrize(
    ("flag", "value", "text"),
    [
        ("rate-limit", "on", "'on' is not one of off, execution_count"),
        ("rate-limit-resource", "R", "as in R1:10 or R1:10:0"),
        ("model-namespacing", "true", "unique over all repositories"),
        ("allow-sagemaker", "true", "the REST listener answers"),
        ("allow-vertex-ai", "1", "the REST listener answers"),
        ("http-port", "x", "'x' is not a whole number"),
        ("allow-http", "maybe", "'maybe' is not true or false"),
        ("http-address", "0.0.0.0", "pass --allow-unauthenticated"),
        ("load-model", "m", "needs --model-control-mode=explicit"),
        ("metrics-config", "histograms=1", "counter_latencies=BOOL"),
        ("model-config-name", "a/b", "is a path; give the name alone"),
        ("trace-level", "HIGH", "'HIGH' is not OFF, TIMESTAMPS or TENSORS"),
        ("trace-level", "TIMESTAMPS", "trace file name is not given"),
        ("trace-rate", "-1", "'-1' is not a whole number from 0"),
        ("response-cache-byte-size", "1G", "'1G' is not a number of bytes"),
        ("backend-config", "default-max-batch-size=x", "'x' is not a whole number"),
    ],
)
def test_what_is_not_done_is_refused_with_what_would_work(
    tmp_path: Path, flag: str, value: str, text: str
) -> None:
    for arguments in ([f"--{flag}={value}"], [f"--{flag}", value]):
        said = refusal(tmp_path, *arguments)
        assert said.startswith(f"--{flag}: ")
        assert text in said


@pytest.mark.parametrize("flag", ["model-namespacing", "allow-sagemaker", "allow-vertex-ai"])
def test_what_is_not_done_may_be_declined(tmp_path: Path, flag: str) -> None:
    read(tmp_path, f"--{flag}=false")


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        ("--htp-port=1", "there is no flag '--htp-port'; did you mean '--http-port'?"),
        ("--http-p=1", "there is no flag '--http-p'"),
        ("-x", "there is no argument '-x'"),
        ("models", "there is no argument 'models'"),
        ("--http-port", "--http-port needs a value"),
    ],
)
def test_unknown_argument_is_named_and_refused(tmp_path: Path, argument: str, text: str) -> None:
    assert text in refusal(tmp_path, argument)


def test_flags_take_their_value_in_every_way_triton_does(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        *("--http-port", "9000", "--grpc-port=9001"),
        *("--strict-readiness", "false", "--allow-grpc=0"),
        *("--exit-on-error", "--disable-auto-complete-config", "--id=x=y"),
        *("--model-control-mode", "explicit", "--load-model=a", "--load-model", "b"),
    ).settings
    assert (found.http_port, found.grpc_port, found.id) == (9000, 9001, "x=y")
    assert (found.strict_readiness, found.allow_grpc, found.exit_on_error) == (False, False, True)
    assert found.disable_auto_complete_config
    assert found.load_model == ("a", "b")


def test_defaults_are_tritons_but_for_the_addresses(tmp_path: Path) -> None:
    settings, notes = read(tmp_path)
    assert settings.model_control_mode == "none"
    assert (settings.repository_poll_secs, settings.exit_on_error) == (15, True)
    assert (settings.id, settings.log_format) == ("triton", "triton")
    assert settings.http_address == settings.grpc_address == "127.0.0.1"
    assert any("listening on 127.0.0.1 alone" in note for note in notes)


def test_variable_beats_the_default_and_a_flag_beats_the_variable(tmp_path: Path) -> None:
    assert read(tmp_path, MODELYARD_ID="mine").settings.id == "mine"
    assert read(tmp_path, "--id=other", MODELYARD_ID="mine").settings.id == "other"


def test_our_own_settings_are_taken_too(tmp_path: Path) -> None:
    settings, notes = read(
        tmp_path,
        *("--http-address=0.0.0.0", "--grpc-address=0.0.0.0", "--allow-unauthenticated"),
        "--state-dir=elsewhere",
    )
    assert settings.http_address == "0.0.0.0"
    assert settings.state_dir == Path("elsewhere")
    assert notes == ()


@pytest.mark.parametrize(
    ("arguments", "name", "value"),
    [
        (["--log-format=default"], "log_format", "triton"),
        (["--log-format=ISO8601"], "log_format", "ISO8601"),
        (["--log-verbose=true"], "log_verbose", 1),
        (["--log-verbose", "2"], "log_verbose", 2),
        (["--strict-model-config=true"], "disable_auto_complete_config", True),
        (["--backend-config=default-max-batch-size=9"], "default_max_batch_size", 9),
        (["--trace-file=f", "--trace-rate=5"], "trace_config", ("file=f", "rate=5")),
        (
            ["--metrics-config", "counter_latencies=false"],
            "metrics_config",
            ("counter_latencies=false",),
        ),
        (["--model-load-retry-count=3"], "model_load_retry_count", 3),
        (["--allow-client-shm=true"], "allow_client_shm", True),
    ],
)
def test_flag_becomes_the_setting(
    tmp_path: Path, arguments: list[str], name: str, value: object
) -> None:
    assert getattr(read(tmp_path, *arguments).settings, name) == value


@pytest.mark.parametrize(
    ("given", "name", "value"),
    [
        ("--model-control-mode=EXPLICIT", "model_control_mode", "explicit"),
        ("--log-format=DEFAULT", "log_format", "triton"),
        ("--log-format=iso8601", "log_format", "ISO8601"),
        ("--repository-poll-secs=0", "repository_poll_secs", 0),
    ],
)
def test_words_are_taken_in_capitals_or_not(
    tmp_path: Path, given: str, name: str, value: object
) -> None:
    command = read_command([f"--model-repository={tmp_path}", given], {}, tmp_path)
    assert getattr(command.settings, name) == value


@pytest.mark.parametrize("word", ["MIN", "max", "Timestamps", "TRUE"])
def test_trace_levels_are_taken_as_triton_takes_them(word: str) -> None:
    assert trace_config.parse([f"level={word}"]).settings.level == ("TIMESTAMPS",)
    assert trace_config.parse([f"level={word}", "level=Off"]).settings.level == ()


def test_a_missing_repository_is_waited_for_where_errors_do_not_end_the_server(
    tmp_path: Path,
) -> None:
    missing = str(tmp_path / "missing")
    command = read_command([f"--model-repository={missing}", "--exit-on-error=false"], {}, tmp_path)
    assert command.settings.model_repository == (Path(missing),)
    there = tmp_path / "there"
    write_identity(there, "m", 1)
    with running(there, tmp_path / "missing", there, exit_on_error=False) as server:
        assert [row["name"] for row in server.index()] == ["m"]
        assert server.is_ready("/v2/models/m/ready")


def test_model_store_is_another_name_for_a_repository(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    found = read(tmp_path, f"--model-store={tmp_path / 'more'}").settings
    assert found.model_repository == (tmp_path, tmp_path / "more")


def test_missing_repository_is_said_on_one_line_with_status_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [one for one in os.environ if one.startswith("MODELYARD_")]:
        monkeypatch.delenv(name)
    assert main([]) == 1
    assert main(["--model-repository=s3://bucket/models"]) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert first == "tritonserver: name a folder of models with --model-repository"
    assert "'s3:/bucket/models' (--model-repository) is not a folder" in second


def test_metrics_are_shown_as_configured() -> None:
    async def rendered(shown: MetricsConfig) -> str:
        served = put(IDENTITY)
        served.counters.request_histogram.add(3_000_000)
        try:
            return render(Shelf([served]), LoopLag(), texts=VersionTexts(shown)).decode()
        finally:
            await served.scheduler.close()

    text = asyncio.run(rendered(parse(["counter_latencies=false"], cpu=False)))
    assert "_duration_us" not in text
    assert "nv_cpu_" not in text
    assert "first_response" not in text
    text = asyncio.run(rendered(parse(["histogram_latencies=true"])))
    assert "nv_inference_request_duration_us{" in text
    name = "nv_inference_first_response_histogram_ms"
    assert re.search(rf'^{name}_bucket{{.*le="2.5"}} 0$', text, re.MULTILINE)
    assert re.search(rf'^{name}_bucket{{.*le="5"}} 1$', text, re.MULTILINE)
    assert re.search(rf"^{name}_sum{{.*}} 3.0$", text, re.MULTILINE)


def command_line() -> list[str]:
    """The installed command, or what it would run where the install is older than it."""
    installed = Path(sysconfig.get_path("scripts"), "tritonserver")
    return (
        [str(installed)]
        if installed.exists()
        else [sys.executable, "-m", "server.cli.tritonserver"]
    )


def test_start_script_written_for_triton_serves(tmp_path: Path) -> None:
    models = tmp_path / "models"
    write_identity(models, "m", 1)
    write_identity(models, "n", 1)
    http_port, grpc_port, metrics_port, admin_port = free_ports(4)
    log = tmp_path / "log"
    arguments = [
        *("--model-repository", str(models), "--model-control-mode=explicit"),
        *("--load-model=m", "--strict-readiness", "true", "--log-verbose=1"),
        *(f"--http-port={http_port}", "--grpc-port", str(grpc_port)),
        *(f"--metrics-port={metrics_port}", f"--admin-port={admin_port}"),
        *(f"--log-file={log}", f"--state-dir={tmp_path / 'state'}", "--allow-admin=false"),
        *("--pinned-memory-pool-byte-size=0", "--http-thread-count=8"),
    ]
    output = tmp_path / "output"
    with output.open("wb") as out:
        process = subprocess.Popen(
            [*command_line(), *arguments], cwd=ROOT, stdout=out, stderr=subprocess.STDOUT
        )
    server = Server(process, output, http_port, grpc_port, metrics_port)
    try:
        server.wait_ready()
        assert json.loads(server.get("/v2")[1])["name"] == "triton"
        assert [(row["name"], row.get("state")) for row in server.index()] == [
            ("m", "READY"),
            ("n", None),
        ]
        assert "--http-thread-count has no effect: one event loop" in log.read_text()
        assert server.stop() == 0
    finally:
        end(process)


def end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        process.kill()
        process.wait()


def test_failed_model_stops_the_server_as_it_stops_triton(tmp_path: Path) -> None:
    models = tmp_path / "models"
    write_identity(models, "m", 1, config="nonsense {")
    ports = [f"--{door}-port={port}" for door, port in zip(DOORS, free_ports(3), strict=True)]
    ran = subprocess.run(
        [*command_line(), f"--model-repository={models}", *ports],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert ran.returncode == 1
    assert "config.pbtxt:1:" in ran.stderr


def test_config_name_selects_among_a_models_configs(tmp_path: Path) -> None:
    write_identity(tmp_path, "m", 1)
    write_identity(tmp_path, "n", 1)
    text = (tmp_path / "m" / "config.pbtxt").read_text()
    (tmp_path / "m" / "configs").mkdir()
    (tmp_path / "m" / "configs" / "h100.pbtxt").write_text(
        text.replace("batch_size: 8", "batch_size: 3")
    )
    found = Scanner((tmp_path,), "h100")
    sizes = {
        name: model.config.max_batch_size
        for name, model in found.build(found.look()).models.items()
    }
    assert sizes == {"m": 3, "n": 8}
    assert scan((tmp_path,)).models["m"].config.max_batch_size == 8


def test_complaint_about_a_selected_config_names_its_file(tmp_path: Path) -> None:
    write_identity(tmp_path, "m", 1)
    (tmp_path / "m" / "configs").mkdir()
    (tmp_path / "m" / "configs" / "h100.pbtxt").write_text("nonsense {")
    found = Scanner((tmp_path,), "h100")
    assert "m/configs/h100.pbtxt:1:" in found.build(found.look()).problems["m"]
