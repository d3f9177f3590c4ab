"""Where packages come from: what of it names an environment, and what pip is told."""

from pathlib import Path

from backends.environments.sources import PackageSources


def test_a_password_in_an_index_address_names_no_other_environment() -> None:
    before = PackageSources(("https://name:one@host:8443/simple", "https://other/simple"))
    after = PackageSources(("https://name:two@host:8443/simple", "https://other/simple"))
    assert before.key == after.key == ("https://host:8443/simple", "https://other/simple")
    told = after.environment({}, Path("/place"))
    assert told["PIP_INDEX_URL"] == "https://name:two@host:8443/simple"
