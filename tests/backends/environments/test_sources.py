"""Where packages come from: what of it names an environment, and what pip is told."""

from pathlib import Path

import pytest

from backends.environments.sources import PackageSources, is_loopback


def test_a_password_in_an_index_address_names_no_other_environment() -> None:
    before = PackageSources(("https://name:one@host:8443/simple", "https://other/simple"))
    after = PackageSources(("https://name:two@host:8443/simple", "https://other/simple"))
    assert before.key == after.key == ("https://host:8443/simple", "https://other/simple")
    told = after.environment({}, Path("/place"))
    assert told["PIP_INDEX_URL"] == "https://name:two@host:8443/simple"


@pytest.mark.parametrize(
    ("host", "is_own"),
    [
        *(("localhost", True), ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True)),
        *(("packages", False), ("10.0.0.1", False), ("localhost.evil.example", False)),
    ],
)
def test_this_machine_is_told_from_others(host: str, is_own: bool) -> None:
    assert is_loopback(host) is is_own
