"""Settings: where they come from, in which order, and what is refused how."""

from pathlib import Path

import pytest

from server.process.machine import usable_cores, usable_memory
from server.settings.row import Setting
from server.settings.sources import read_settings
from server.settings.table import TABLE, Settings, SettingsError


def refusal(folder: Path, flags: dict[str, str], **environment: str) -> str:
    with pytest.raises(SettingsError) as caught:
        read_settings(flags, environment, folder)
    return str(caught.value)


def toml(folder: Path, text: str) -> Path:
    path = folder / "modelyard.toml"
    path.write_text(text)
    return path


def test_defaults_are_used_when_nothing_is_said(tmp_path: Path) -> None:
    settings = read_settings({}, {}, tmp_path)
    assert settings == Settings()
    assert settings.http_port == 8000
    assert settings.model_control_mode == "poll"
    assert settings.source("http_port") == "default"


@pytest.mark.parametrize("text", ["redis,host=h", "local", "local,size=", "local,size=1k"])
def test_a_cache_that_does_not_exist_is_refused(text: str, tmp_path: Path) -> None:
    said = refusal(tmp_path, {"cache_config": text})
    assert said == f"--cache-config: '{text}' is not of the form local,size=BYTES"


def test_flag_beats_environment_beats_toml_beats_default(tmp_path: Path) -> None:
    path = toml(tmp_path, "http_port = 1\ngrpc_port = 2\nmetrics_port = 3\n")
    environment = {"MODELYARD_HTTP_PORT": "11", "MODELYARD_GRPC_PORT": "12", "PATH": "/bin"}
    settings = read_settings({"http_port": "21"}, environment, tmp_path)
    assert (settings.http_port, settings.grpc_port, settings.metrics_port) == (21, 12, 3)
    assert settings.admin_port == 8003
    assert settings.source("http_port") == "--http-port"
    assert settings.source("grpc_port") == "MODELYARD_GRPC_PORT"
    assert settings.source("metrics_port") == str(path)


def _certificates(listener: str) -> dict[str, str]:
    return {f"{listener}_{part}": "x.pem" for part in ("server_cert", "server_key", "root_cert")}


_COMPANIONS = {
    "load_model": {"model_control_mode": "explicit"},
    **{f"http_use_ssl{more}": _certificates("http") for more in ("", "_mutual")},
    **{f"grpc_use_ssl{more}": _certificates("grpc") for more in ("", "_mutual")},
}
"""What must be said beside a setting for it to make sense."""


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_every_setting_can_be_given_in_every_way(row: Setting, tmp_path: Path) -> None:
    name, variable = row.name, row.variable
    text, toml_text = _example(name)
    extra = _COMPANIONS.get(name, {})
    flag_value = [text] if isinstance(getattr(Settings(), name), tuple) else text
    by_flag = read_settings({**extra, name: flag_value}, {}, tmp_path)
    by_variable = read_settings(extra, {variable: text}, tmp_path)
    toml(tmp_path, f"{name} = {toml_text}")
    by_toml = read_settings(extra, {}, tmp_path)
    assert getattr(by_flag, name) != getattr(Settings(), name)
    assert getattr(by_flag, name) == getattr(by_variable, name) == getattr(by_toml, name)


def _example(name: str) -> tuple[str, str]:
    """A value that is not the default, as text and as TOML."""
    default = getattr(Settings(), name)
    words = {
        "model_control_mode": "none",
        "cache_config": "local,size=1000",
        "inference_auth": "token",
        "worker_sandbox": "strict",
        "public_url": "https://models.example",
        "http_cors_allow_origin": "https://app.example",
        "import_allow": "s3://models/team",
        "trusted_proxies": "10.0.0.0/8",
        "notification_allow": "http://10.0.0.7:9000/hooks",
        "admin_trusted_proxies": "10.0.0.0/8",
        "database": "postgresql://somebody:secret@db.example/modelyard",
        "log_level": "debug",
        "log_format": "json",
        "trace_config": "rate=7",
        "memory_budget": "cpu=16GiB",
        "rate_limit": "execution_count",
        "rate_limit_resource": "R:10:0",
        "metrics_config": "histogram_latencies=true",
        "environment_builds": "off",
        "job_worker": "off",
        "job_broker": "redis://:secret@queue.example/1",
        "environment_index": "https://index.example/simple",
        "http_restricted_api": "inference,health:key=value",
        "grpc_restricted_protocol": "inference,health:key=value",
    }
    if isinstance(default, bool):
        word = str(not default).lower()
        return word, word
    if name in ("access_log_sample", "health_error_rate"):
        return "0.5", "0.5"
    if name in ("series_limit", "drift_limit"):
        return "7777777", "7777777"
    if isinstance(default, int | float):
        return "77", "77"
    word = words.get(name, "127.0.0.2" if name.endswith("address") else "other")
    return word, f'"{word}"'


def test_lists_are_toml_arrays_and_commas_in_the_environment(tmp_path: Path) -> None:
    by_variable = read_settings({}, {"MODELYARD_MODEL_REPOSITORY": "a, b"}, tmp_path)
    toml(tmp_path, 'model_repository = ["a", "b"]')
    assert read_settings({}, {}, tmp_path).model_repository == (Path("a"), Path("b"))
    assert by_variable.model_repository == (Path("a"), Path("b"))


def test_config_flag_names_the_file_and_beats_the_variable(tmp_path: Path) -> None:
    toml(tmp_path, "http_port = 1")
    (tmp_path / "one.toml").write_text("http_port = 2")
    (tmp_path / "two.toml").write_text("http_port = 3")
    environment = {"MODELYARD_CONFIG": "one.toml"}
    assert read_settings({}, environment, tmp_path).http_port == 2
    assert read_settings({"config": "two.toml"}, environment, tmp_path).http_port == 3


def test_config_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path, {"config": "no.toml"}) == "--config: there is no file 'no.toml'"


def test_broken_toml_is_refused_with_its_place(tmp_path: Path) -> None:
    path = toml(tmp_path, "http_port 8000")
    message = refusal(tmp_path, {})
    assert message.startswith(f"{path}: cannot be read as TOML")
    assert "line 1" in message


def test_unknown_toml_key_names_the_nearest_setting(tmp_path: Path) -> None:
    path = toml(tmp_path, "http-port = 1")
    expected = f"{path}: there is no setting 'http-port'; did you mean 'http_port'?"
    assert refusal(tmp_path, {}) == expected


def test_unknown_variable_names_the_nearest_variable(tmp_path: Path) -> None:
    message = refusal(tmp_path, {}, MODELYARD_HTTP_PROT="1")
    assert "MODELYARD_HTTP_PROT; did you mean 'MODELYARD_HTTP_PORT'?" in message


@pytest.mark.parametrize(
    ("name", "text", "allowed"),
    [
        ("http_port", "80000", "a whole number from 0 to 65535"),
        ("http_port", "eighty", "a whole number from 0 to 65535"),
        ("strict_readiness", "maybe", "true or false"),
        ("exit_timeout_secs", "-1", "a number of seconds from 0 up"),
        ("exit_timeout_secs", "inf", "a number of seconds from 0 up"),
        ("exit_timeout_secs", "nan", "a number of seconds from 0 up"),
        ("id", " ", "a text that is not empty"),
        ("model_control_mode", "pol", "one of none, poll, explicit; did you mean 'poll'?"),
    ],
)
def test_value_that_is_not_allowed_is_refused_with_what_is(
    name: str, text: str, allowed: str, tmp_path: Path
) -> None:
    variable = f"MODELYARD_{name.upper()}"
    assert refusal(tmp_path, {}, **{variable: text}) == f"{variable}: '{text}' is not {allowed}"


def test_toml_value_of_the_wrong_type_is_refused(tmp_path: Path) -> None:
    path = toml(tmp_path, "http_port = true")
    expected = f"{path}: http_port: True is not a whole number from 0 to 65535"
    assert refusal(tmp_path, {}) == expected


@pytest.mark.parametrize("listener", ["http", "grpc", "metrics"])
def test_address_others_can_reach_is_refused_and_the_flag_that_allows_it_named(
    listener: str, tmp_path: Path
) -> None:
    flags = {f"{listener}_address": "0.0.0.0"}
    message = refusal(tmp_path, flags)
    assert f"{listener}_address '0.0.0.0'" in message
    assert "--allow-unauthenticated" in message
    assert "--inference-auth=token" in message
    for more in ({"allow_unauthenticated": "true"}, {"inference_auth": "token"}):
        allowed = read_settings({**flags, **more}, {}, tmp_path)
        assert getattr(allowed, f"{listener}_address") == "0.0.0.0"


def test_the_admin_port_may_be_bound_wider_for_it_always_asks_who_one_is(tmp_path: Path) -> None:
    settings = read_settings({"admin_address": "0.0.0.0"}, {}, tmp_path)
    assert settings.admin_address == "0.0.0.0"
    assert "admin_port 8000 is also the http_port" in refusal(tmp_path, {"admin_port": "8000"})
    assert read_settings({"admin_port": "8000", "allow_admin": "false"}, {}, tmp_path)
    assert "'unix:a' is a Unix socket" in refusal(tmp_path, {"admin_address": "unix:a"})


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("mysql://root:hunter2@db/x", "mysql://root:***@db/x"),
        ("postgresql://root:hun@ter2@db:5432/", "postgresql://root:***@db:5432/"),
        ("postgresql://root:hunter2@db", "postgresql://root:***@db"),
        ("postgresql://db/?password=hunter2&x=y", "postgresql://db/?password=***&x=y"),
        ("postgresql://root:hunter2@[db/x", "postgresql://root:***@[db/x"),
        ("root:hunter2@db/x", "root:***@db/x"),
        ("sqlite://", "sqlite://"),
    ],
)
def test_a_refused_database_is_told_of_without_its_password(
    url: str, shown: str, tmp_path: Path
) -> None:
    said = refusal(tmp_path, {}, MODELYARD_DATABASE=url)
    assert said.startswith(f"MODELYARD_DATABASE: '{shown}' is not of the form sqlite:///PATH or")
    toml(tmp_path, f'database = "{url}"')
    assert f"'{shown}' is not" in refusal(tmp_path, {})
    assert "hunter2" not in said


def test_secrets_are_not_shown_with_the_settings() -> None:
    database = "postgresql://somebody:hunter2@db/modelyard"
    settings = Settings(database=database, http_restricted_api=("inference:x-key=hunter2",))
    assert "hunter2" not in repr(settings)
    shown = {row.name: row.shown(getattr(settings, row.name)) for row in TABLE}
    assert shown["database"] == "postgresql://somebody:***@db/modelyard"
    assert shown["http_restricted_api"] == "inference:x-key=***"
    assert shown["http_port"] == "8000"
    assert shown["store_dir"] == "STATE_DIR/store"
    assert settings.database_url == database


def test_database_and_store_lie_in_the_state_folder_unless_told_otherwise(tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path)
    assert settings.database_url == f"sqlite:///{tmp_path}/modelyard.db"
    assert settings.store_folder == tmp_path / "store"
    assert Settings(store_dir=Path("other")).store_folder == Path("other")


@pytest.mark.parametrize(
    "url",
    ["models.example", "ftp://h", "https://", "http://h/path", "http://u:p@h", "http://h:x"],
)
def test_a_public_url_that_is_none_is_refused(url: str, tmp_path: Path) -> None:
    message = refusal(tmp_path, {"public_url": url})
    assert "is not of the form https://HOST or http://HOST:PORT, without a path" in message


def test_closed_listener_may_have_any_address(tmp_path: Path) -> None:
    flags = {"allow_grpc": "false", "grpc_address": "0.0.0.0"}
    assert read_settings(flags, {}, tmp_path).grpc_address == "0.0.0.0"


@pytest.mark.parametrize("address", ["localhost", "127.0.0.1", "127.8.8.8", "::1"])
def test_loopback_addresses_need_no_flag(address: str) -> None:
    assert Settings(http_address=address).metrics_address == address


def test_metrics_follow_the_rest_listener_unless_told_otherwise() -> None:
    assert Settings(http_address="127.0.0.9").metrics_address == "127.0.0.9"
    assert Settings(metrics_address="127.0.0.9").metrics_address == "127.0.0.9"


def test_two_listeners_on_one_port_are_refused_and_both_named() -> None:
    with pytest.raises(SettingsError, match="grpc_port 8000 is also the http_port"):
        Settings(grpc_port=8000)


def test_free_ports_may_be_asked_for_all_listeners() -> None:
    assert Settings(http_port=0, grpc_port=0, metrics_port=0).grpc_port == 0


def test_models_to_load_need_explicit_mode() -> None:
    with pytest.raises(SettingsError, match="--model-control-mode=explicit"):
        Settings(load_model=("digits",))


def test_star_stands_alone() -> None:
    with pytest.raises(SettingsError, match="must be the only one"):
        Settings(model_control_mode="explicit", load_model=("*", "digits"))


def test_server_without_any_repository_is_refused() -> None:
    with pytest.raises(SettingsError, match="model_repository is empty"):
        Settings(model_repository=())


def test_zero_cores_means_those_this_process_may_use() -> None:
    assert Settings().cores == usable_cores()
    assert Settings(cores=3).cores == 3


def cgroup(folder: Path, quota: str) -> tuple[Path, Path]:
    """A cgroup v2 tree whose outer group has the quota, and the membership of its inner one."""
    (folder / "tree" / "outer" / "inner").mkdir(parents=True)
    (folder / "tree" / "outer" / "cpu.max").write_text(quota)
    (folder / "tree" / "outer" / "inner" / "cpu.max").write_text("max 100000\n")
    (folder / "membership").write_text("0::/outer/inner\n")
    return folder / "tree", folder / "membership"


def test_quota_of_an_outer_cgroup_bounds_the_cores(tmp_path: Path) -> None:
    assert usable_cores(*cgroup(tmp_path, "100000 100000\n")) == 1


def test_quota_below_one_core_still_leaves_one(tmp_path: Path) -> None:
    assert usable_cores(*cgroup(tmp_path, "20000 100000\n")) == 1


def test_quota_above_the_affinity_changes_nothing(tmp_path: Path) -> None:
    unbounded = usable_cores(tmp_path, tmp_path / "absent")
    assert usable_cores(*cgroup(tmp_path, "99900000 100000\n")) == unbounded


def test_the_buffers_are_a_quarter_of_the_memory_unless_told_otherwise_and_never_next_to_nothing():
    assert Settings().buffer_bytes == max(usable_memory() // 4, 16 * 2**20)
    assert Settings(buffer_limit=2**30).buffer_bytes == 2**30
    assert Settings(buffer_limit=1000).buffer_bytes == 16 * 2**20
