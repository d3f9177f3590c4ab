"""Where webhooks may lead."""

import pytest

from control.errors import Invalid
from control.notifications.targets import hidden, target_of


def test_a_public_https_url_is_taken_apart() -> None:
    target = target_of("https://hooks.example.com:8443/services/T0/B1?x=1")
    assert (target.host, target.port, target.authority) == (
        "hooks.example.com",
        8443,
        "hooks.example.com:8443",
    )
    assert (target.path, target.tls, target.trusted) == ("/services/T0/B1?x=1", True, False)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://hooks.example.com/x", "not encrypted"),
        ("ftp://hooks.example.com/x", "does not begin with"),
        ("s3://bucket/x", "neither https:// nor http://"),
        ("https://ada:secret@hooks.example.com/x", "a user or a password"),
        ("https://127.0.0.1/x", "loopback"),
        ("https://[::1]/x", "loopback"),
        ("https://10.1.2.3/x", "private"),
        ("https://192.168.0.1/x", "private"),
        ("https://169.254.169.254/latest", "instance credentials"),
        ("https://[::ffff:169.254.169.254]/x", "instance credentials"),
        ("https://[64:ff9b::a00:1]/x", "private"),
        ("https://0.0.0.0/x", "unspecified"),
        ("https://hooks.example.com/a\r\nX: y", "percent-encode"),
        ("https:///x", "names no host"),
        ("https://hooks.example.com/" + "x" * 2048, "at most 2048"),
    ],
)
def test_an_url_that_leads_elsewhere_is_refused_in_words(url: str, said: str) -> None:
    with pytest.raises(Invalid, match=said) as refused:
        target_of(url)
    assert refused.value.field == "url"


def test_the_refusal_names_the_setting_and_not_the_path() -> None:
    with pytest.raises(Invalid) as refused:
        target_of("https://10.1.2.3/services/SECRET")
    assert "--notification-allow=https://HOST/" in str(refused.value)
    assert "SECRET" not in str(refused.value)


def test_an_allowed_prefix_may_be_private_and_unencrypted() -> None:
    target = target_of("http://10.1.2.3:9000/hooks/a", ["http://10.1.2.3:9000/hooks"])
    assert target.trusted
    assert not target.tls


@pytest.mark.parametrize(
    "url",
    [
        "http://10.1.2.3:9001/hooks/a",
        "https://10.1.2.3:9000/hooks/a",
        "http://10.1.2.3:9000/hookshop",
        "https://hooks.example.com/x",
    ],
)
def test_with_prefixes_every_other_place_is_refused(url: str) -> None:
    with pytest.raises(Invalid, match="not below a prefix of --notification-allow"):
        target_of(url, ["http://10.1.2.3:9000/hooks"])


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://hooks.example.com/services/T0", "https://hooks.example.com/…"),
        ("https://hooks.example.com?key=1", "https://hooks.example.com?…"),
        ("https://hooks.example.com/", "https://hooks.example.com/"),
        ("https://u:p@hooks.example.com:8443/x", "https://hooks.example.com:8443/…"),
    ],
)
def test_a_shown_url_has_neither_path_nor_query_nor_user(url: str, shown: str) -> None:
    assert hidden(url) == shown
