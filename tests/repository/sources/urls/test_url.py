"""Which URLs of models are understood, and which are refused and why."""

import pytest

from repository.sources.errors import BadSource
from repository.sources.urls.addresses import why_not_public
from repository.sources.urls.url import BucketUrl, HubFolder, WebFile, hop, parse, redirected


def refusal(text: str, *allowed: str) -> str:
    with pytest.raises(BadSource) as caught:
        parse(text, allowed)
    return str(caught.value)


@pytest.mark.parametrize("scheme", ["s3", "gs"])
@pytest.mark.parametrize("ending", ["", "/"])
def test_a_prefix_in_a_bucket_ends_at_a_folder(scheme: str, ending: str) -> None:
    source = parse(f"{scheme}://my-bucket/models/resnet{ending}")
    assert isinstance(source, BucketUrl)
    assert (source.scheme, source.bucket, source.key_prefix) == (
        scheme,
        "my-bucket",
        "models/resnet/",
    )


def test_a_hub_folder_has_a_revision_which_is_main_unless_given() -> None:
    source = parse("hf://owner/name/onnx")
    assert isinstance(source, HubFolder)
    assert (source.repository, source.revision, source.folder) == ("owner/name", "main", "onnx/")
    pinned = parse("hf://owner/name@refs%2Fpr%2F1")
    assert isinstance(pinned, HubFolder)
    assert (pinned.revision, pinned.folder) == ("refs/pr/1", "")


@pytest.mark.parametrize(
    ("name", "suffix"),
    [
        ("m.zip", ".zip"),
        ("m.tar", ".tar"),
        ("m.tar.gz", ".tar.gz"),
        ("m.tgz", ".tgz"),
        ("m.tar.zst", ".tar.zst"),
        ("M.ONNX", ".onnx"),
        ("m.pt2", ".pt2"),
        ("m.safetensors", ".safetensors"),
    ],
)
def test_a_web_file_is_known_by_its_ending(name: str, suffix: str) -> None:
    source = parse(f"https://example.com/a%20b/{name}?download=1")
    assert isinstance(source, WebFile)
    assert (source.name, source.suffix) == (name, suffix)
    assert source.text == f"https://example.com/a%20b/{name}"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ftp://host/x.zip", "does not begin with one of s3://"),
        ("file:///etc/passwd", "does not begin with one of"),
        ("x.zip", "does not begin with one of"),
        ("https:///x.zip", "names no host"),
        ("https://host/x.bin", "ends in one of '.zip'"),
        ("https://host/.zip", "ends in one of '.zip'"),
        ("https://host:99999/x.zip", "is no URL"),
        ("https://[::1/x.zip", "is no URL"),
        ("https://host\\@evil/x.zip", "is no URL"),
        ("https://host/\n/x.zip", "is no URL"),
        ("https://höst/x.zip", "is no URL"),
        ("https://host/a/../x.zip", "has '.', '..'"),
        ("https://host/a/%2e%2E/x.zip", "has '.', '..'"),
        ("https://host/a/%252e%252e/x.zip", "has '.', '..'"),
        ("https://host/a%00/x.zip", "control character"),
        ("https://host/a%5c/x.zip", "backslash"),
        ("s3://Bucket/x", "no bucket's name"),
        ("s3://169.254.169.254/x", "no bucket's name"),
        ("s3://bucket:80/x", "has no port, query or fragment"),
        ("s3://bucket/x?versionId=1", "has no port, query or fragment"),
        ("s3://bucket/a//b", "has the part ''"),
        ("hf://owner", "write hf://owner/name"),
        ("hf://owner/name@/x", "is no branch, tag or commit"),
        ("hf://owner/name@-x", "is no branch, tag or commit"),
        ("hf://owner/name/%252e%252e/x", "has '.', '..'"),
    ],
)
def test_a_url_is_refused_with_the_reason(text: str, reason: str) -> None:
    assert reason in refusal(text)


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("https://user:pw-hidden@host/x.zip", "NETRC"),
        ("https://host/x.zip?X-Amz-Signature=pw-hidden", "NETRC"),
        ("https://host/x.zip?a=1&token=pw-hidden", "NETRC"),
        ("https://host/x.zip?sig=pw-hidden", "NETRC"),
        ("s3://key:pw-hidden@bucket/x", "AWS_ACCESS_KEY_ID"),
        ("gs://key:pw-hidden@bucket/x", "GOOGLE_APPLICATION_CREDENTIALS"),
        ("hf://user:pw-hidden@owner/name", "HF_TOKEN"),
    ],
)
def test_credentials_in_a_url_are_refused_and_not_repeated(text: str, remedy: str) -> None:
    message = refusal(text)
    assert remedy in message
    assert "pw-hidden" not in message


PRIVATE = [
    "127.0.0.1",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",
    "224.0.0.1",
    "255.255.255.255",
    "::1",
    "::",
    "fe80::1",
    "fe80::1%eth0",
    "fd00:ec2::254",
    "ff02::1",
    "::ffff:127.0.0.1",
    "::ffff:a9fe:a9fe",
    "::127.0.0.1",
    "64:ff9b::169.254.169.254",
    "2002:7f00:1::",
    "::ffff:0:127.0.0.1",
]


@pytest.mark.parametrize("address", PRIVATE)
def test_an_address_that_is_not_public_is_known(address: str) -> None:
    assert why_not_public(address)


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
)
def test_a_public_address_is_known(address: str) -> None:
    assert why_not_public(address) is None


@pytest.mark.parametrize("address", [one for one in PRIVATE if "%" not in one])
def test_a_private_address_in_a_url_is_refused(address: str) -> None:
    host = f"[{address}]" if ":" in address else address
    assert "leads to an address that is" in refusal(f"http://{host}/x.zip")


def test_the_metadata_service_is_named_as_what_it_is() -> None:
    assert "where clouds keep instance credentials" in refusal("http://169.254.169.254/x.zip")


def test_a_private_address_below_an_allowed_prefix_is_accepted() -> None:
    assert parse("http://10.0.0.1:9000/m/x.zip", ["http://10.0.0.1:9000/m"])


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("https://models.example.com.evil/x.zip", "https://models.example.com"),
        ("https://models.example.com:444/x.zip", "https://models.example.com"),
        ("http://models.example.com/x.zip", "https://models.example.com"),
        ("https://example.com/models-evil/x.zip", "https://example.com/models"),
        ("s3://bucket-2/x", "s3://bucket"),
        ("s3://bucket/prefix2/x", "s3://bucket/prefix"),
        ("hf://owner2/name", "hf://owner"),
        ("hf://owner/name2", "hf://owner/name"),
        ("gs://bucket/x", "s3://bucket/"),
    ],
)
def test_a_url_beside_every_allowed_prefix_is_refused(text: str, allowed: str) -> None:
    assert f"is not below an allowed source: '{allowed}'" in refusal(text, allowed)


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("https://Example.com:443/models/x.zip", "https://example.com/models/"),
        ("https://example.com./models/x.zip", "https://example.com"),
        ("s3://bucket/prefix/x", "s3://bucket/prefix"),
        ("hf://owner/name@v1/x", "hf://owner/name"),
        ("hf://owner/name", "hf://owner/"),
    ],
)
def test_a_url_below_an_allowed_prefix_is_accepted(text: str, allowed: str) -> None:
    assert parse(text, ["gs://other", allowed])


def test_a_redirect_to_a_private_address_is_refused() -> None:
    first = hop("https://example.com/x.zip", ())
    with pytest.raises(BadSource, match="link-local"):
        redirected(first, "//169.254.169.254/latest/meta-data", ())


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("http://example.com/x.zip", "not encrypted"),
        ("file:///etc/passwd", "does not begin with"),
        ("gs://bucket/x", "neither http"),
        ("https://a:b@example.org/", "credentials"),
    ],
)
def test_a_redirect_elsewhere_is_refused(location: str, reason: str) -> None:
    with pytest.raises(BadSource, match=reason):
        redirected(hop("https://example.com/x.zip", ()), location, ())


def test_a_redirect_may_be_signed_and_relative() -> None:
    first = hop("https://example.com/a/x.zip", ())
    assert redirected(first, "../b?Signature=1", ()).url == "https://example.com/b?Signature=1"
