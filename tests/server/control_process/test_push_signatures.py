"""Signatures of versions: asked for by the repository, checked while the pusher watches."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("model_signing")

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from repository.signing import SIGNATURE, sign
from support.refusals import refused, started, write
from support.yard import Yard, write_identity, yard

pytestmark = pytest.mark.slow

KEY, STRANGER = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))


def private(key: ec.EllipticCurvePrivateKey) -> bytes:
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return key.private_bytes(encoding, form, serialization.NoEncryption())


def public(key: ec.EllipticCurvePrivateKey) -> bytes:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(serialization.Encoding.PEM, form)


@pytest.fixture(scope="module")
def y(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    with yard(tmp_path_factory.mktemp("yard")) as made:
        yield made


@pytest.fixture(scope="module")
def key(y: Yard) -> Path:
    path = y.folder / "key.pub"
    path.write_bytes(public(KEY))
    return path


def version_of(work: Path, model: str, number: int = 1) -> Path:
    return work / "models" / model / str(number)


def test_an_unsigned_version_is_refused_where_signatures_are_asked_for(y: Yard, key: Path) -> None:
    work = started(y, "must", "must")
    y.cli("repo", "change", "must", "--signing", "require", "--trusted-key", str(key))
    y.commit(work, "unsigned")
    refused(y, work, says=f"models/must/1/{SIGNATURE} E460 ")


def test_a_signed_version_is_accepted_and_its_row_names_the_signer(y: Yard, key: Path) -> None:
    work = started(y, "signed", "signed")
    y.cli("repo", "change", "signed", "--signing", "require", "--trusted-key", str(key))
    sign(version_of(work, "signed"), private(KEY))
    y.commit(work, "signed")
    assert "served: signed" in y.push(work)
    row = y.api("GET", "/models/signed/versions/1")[1]
    assert row["provenance"]["signer"] == "trusted key 1"
    assert row["checks"]["signature"] == "good"


def test_a_second_version_needs_a_signature_of_its_own(y: Yard, key: Path) -> None:
    work = started(y, "second", "second")
    y.cli("repo", "change", "second", "--signing", "require", "--trusted-key", str(key))
    sign(version_of(work, "second"), private(KEY))
    write_identity(work, "second", 2)
    y.commit(work, "one of two is signed")
    said = refused(y, work, says=f"models/second/2/{SIGNATURE} E460 ")
    assert "models/second/1/" not in said


def test_a_file_changed_after_signing_is_refused_by_name(y: Yard, key: Path) -> None:
    work = started(y, "tampered", "tampered")
    y.cli("repo", "change", "tampered", "--signing", "require", "--trusted-key", str(key))
    sign(version_of(work, "tampered"), private(KEY))
    write(work, {"models/tampered/1/about.txt": "other bytes"})
    y.commit(work, "tampered")
    refused(y, work, says=("E460 'models/tampered/1' is not what 'trusted key 1' signed",))
    write(work, {"models/tampered/1/about.txt": "version 1\n", "models/tampered/1/more.txt": "x"})
    y.commit(work, "a file more")
    refused(y, work, says=("E460 'models/tampered/1' is not what 'trusted key 1' signed",))


def test_a_stranger_s_signature_is_refused(y: Yard, key: Path) -> None:
    work = started(y, "stranger", "stranger")
    y.cli("repo", "change", "stranger", "--signing", "require", "--trusted-key", str(key))
    sign(version_of(work, "stranger"), private(STRANGER))
    y.commit(work, "signed by somebody else")
    refused(y, work, says="is not a signature by a trusted key (trusted key 1); sign the version")


def test_warn_only_tells_the_pusher(y: Yard, key: Path) -> None:
    work = started(y, "warned", "warned")
    y.cli("repo", "change", "warned", "--signing", "warn", "--trusted-key", str(key))
    y.commit(work, "unsigned")
    said = y.push(work)
    assert f"remote: warning: models/warned/1/{SIGNATURE} E460 " in said
    assert "served: warned" in said
    row = y.api("GET", "/models/warned/versions/1")[1]
    assert (row["provenance"]["signer"], row["checks"]["signature"]) == ("", "missing or wrong")


def test_require_without_a_key_is_refused_to_the_administrator(y: Yard) -> None:
    y.repository("keyless")
    said = y.cli("repo", "change", "keyless", "--signing", "require", ok=False)
    assert "signing 'require' needs a key in trusted_keys" in said
