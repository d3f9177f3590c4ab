"""Signatures of version folders, made and checked by the real library."""

import re
import subprocess
import sys
from base64 import b64decode, b64encode
from datetime import UTC, datetime, timedelta
from pathlib import Path

import orjson
import pytest

pytest.importorskip("model_signing")

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from model_signing import hashing, signing

from repository.errors import BadSignature
from repository.signing import SIGNATURE, TrustedSigner, VerifiedSignature, sign, verify
from support.killing import ROOT

KEY, OTHER_KEY = (ec.generate_private_key(curve()) for curve in (ec.SECP256R1, ec.SECP384R1))


def private(key: ec.EllipticCurvePrivateKey) -> bytes:
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return key.private_bytes(encoding, form, serialization.NoEncryption())


def public(key: ec.EllipticCurvePrivateKey) -> bytes:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(serialization.Encoding.PEM, form)


TRUSTED = TrustedSigner("release", public(KEY))
OTHER = TrustedSigner("other", public(OTHER_KEY))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "digits/1"
    (path / "sub").mkdir(parents=True)
    (path / "model.onnx").write_bytes(b"weights")
    (path / "sub/labels.txt").write_bytes(b"a\nb\n")
    return path


def test_a_signed_version_is_verified_and_its_signer_named(folder: Path):
    signature = sign(folder, private(KEY))
    assert signature == folder / SIGNATURE
    assert verify(folder, signature, [OTHER, TRUSTED]) == VerifiedSignature("release")


def test_signing_again_replaces_the_signature(folder: Path):
    sign(folder, private(OTHER_KEY))
    signature = sign(folder, private(KEY))
    assert verify(folder, signature, [TRUSTED]) == VerifiedSignature("release")
    assert sorted(path.name for path in folder.iterdir()) == ["model.onnx", "model.sig", "sub"]


def test_the_folder_may_be_called_and_lie_elsewhere(folder: Path, tmp_path: Path):
    sign(folder, private(KEY))
    moved = folder.rename(tmp_path / "7")
    assert verify(moved, moved / SIGNATURE, [TRUSTED]) == VerifiedSignature("release")


@pytest.mark.parametrize("trusted", [[], [OTHER]])
def test_a_key_that_is_not_trusted_is_refused(folder: Path, trusted: list[TrustedSigner]):
    signature = sign(folder, private(KEY))
    with pytest.raises(BadSignature, match=r"model\.sig' is not a signature by a trusted key"):
        verify(folder, signature, trusted)


def test_a_changed_file_is_named(folder: Path):
    signature = sign(folder, private(KEY))
    (folder / "model.onnx").write_bytes(b"WEIGHTS")
    with pytest.raises(BadSignature, match=r"not what 'release' signed.*model\.onnx"):
        verify(folder, signature, [TRUSTED])


@pytest.mark.parametrize("name", ["extra.py", "sub/extra.py"])
def test_an_added_file_is_named(folder: Path, name: str):
    signature = sign(folder, private(KEY))
    (folder / name).write_bytes(b"")
    with pytest.raises(BadSignature, match=name):
        verify(folder, signature, [TRUSTED])


def test_a_missing_file_is_named(folder: Path):
    signature = sign(folder, private(KEY))
    (folder / "sub/labels.txt").unlink()
    with pytest.raises(BadSignature, match=r"sub/labels\.txt"):
        verify(folder, signature, [TRUSTED])


def test_a_missing_signature_says_how_to_make_one(folder: Path):
    with pytest.raises(BadSignature, match=r"model\.sig.*model_signing sign"):
        verify(folder, folder / SIGNATURE, [TRUSTED])


@pytest.mark.parametrize("target", ["/etc/hostname", "model.onnx", "sub"])
def test_a_link_is_neither_signed_nor_verified(folder: Path, target: str):
    signature = sign(folder, private(KEY))
    (folder / "link").symlink_to(target)
    with pytest.raises(BadSignature, match="link"):
        verify(folder, signature, [TRUSTED])
    with pytest.raises(BadSignature, match="link"):
        sign(folder, private(KEY))


def test_a_folder_without_a_file_is_refused(tmp_path: Path):
    with pytest.raises(BadSignature, match="no file"):
        sign(tmp_path, private(KEY))


def test_a_signature_that_was_made_elsewhere_and_put_in_counts(folder: Path, tmp_path: Path):
    (tmp_path / "key").write_bytes(private(KEY))
    signer = signing.Config().use_elliptic_key_signer(private_key=tmp_path / "key")
    signer.sign(folder, tmp_path / "made")
    (tmp_path / "made").rename(folder / SIGNATURE)
    assert verify(folder, folder / SIGNATURE, [TRUSTED]) == VerifiedSignature("release")


def test_a_way_of_hashing_that_does_not_exist_is_refused(folder: Path):
    signature = sign(folder, private(KEY))
    bundle = orjson.loads(signature.read_bytes())
    payload = b64decode(bundle["dsseEnvelope"]["payload"])
    # Keys come in any order, so nothing may be assumed of what stands behind the value.
    statement = re.sub(rb'("hash_type":\s*)"sha256"', rb'\1"crc32"', payload)
    assert statement != payload
    bundle["dsseEnvelope"]["payload"] = b64encode(statement).decode()
    signature.write_bytes(orjson.dumps(bundle))
    with pytest.raises(BadSignature, match="a way of its own"):
        verify(folder, signature, [TRUSTED])


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[]", b"[" * 100_000, b"\xff", b'{"verificationMaterial": {}}', b"null"],
)
def test_a_signature_that_is_none_is_refused(folder: Path, content: bytes):
    (folder / SIGNATURE).write_bytes(content)
    with pytest.raises(BadSignature):
        verify(folder, folder / SIGNATURE, [TRUSTED])


def test_a_signature_with_any_field_gone_is_refused(folder: Path):
    signature = sign(folder, private(KEY))
    bundle = orjson.loads(signature.read_bytes())
    for outer in bundle:
        for inner in bundle[outer] if isinstance(bundle[outer], dict) else ():
            broken = {**bundle, outer: {**bundle[outer], inner: None}}
            if inner in ("tlogEntries", "timestampVerificationData"):
                continue  # nothing that a key's signature rests on
            signature.write_bytes(orjson.dumps(broken))
            with pytest.raises(BadSignature):
                verify(folder, signature, [TRUSTED])


def test_a_statement_that_was_changed_after_signing_is_refused(folder: Path):
    signature = sign(folder, private(KEY))
    (folder / "model.onnx").write_bytes(b"WEIGHTS")
    forged = folder.parent / "forged"
    folder.rename(forged)
    bundle = orjson.loads((forged / SIGNATURE).read_bytes())
    new = orjson.loads(sign(forged, private(OTHER_KEY)).read_bytes())
    bundle["dsseEnvelope"]["payload"] = new["dsseEnvelope"]["payload"]
    (forged / signature.name).write_bytes(orjson.dumps(bundle))
    with pytest.raises(BadSignature, match="not a signature by a trusted key"):
        verify(forged, forged / SIGNATURE, [TRUSTED])


def test_a_file_that_a_trusted_signer_left_out_is_refused(folder: Path, tmp_path: Path):
    (tmp_path / "key").write_bytes(private(KEY))
    some = hashing.Config().set_ignored_paths(paths=[SIGNATURE, "sub"])
    signer = signing.Config().use_elliptic_key_signer(private_key=tmp_path / "key")
    signer.set_hashing_config(some).sign(folder, folder / SIGNATURE)
    with pytest.raises(BadSignature, match=r"leaves out 'sub/labels\.txt'"):
        verify(folder, folder / SIGNATURE, [TRUSTED])


@pytest.mark.parametrize("way", ["sha256", "blake2", "blake3", "shards"])
def test_every_way_of_hashing_of_the_library_is_understood(folder: Path, tmp_path: Path, way: str):
    (tmp_path / "key").write_bytes(private(KEY))
    config = hashing.Config()
    if way == "shards":
        config.use_shard_serialization(shard_size=3)
    else:
        config.use_file_serialization(hashing_algorithm=way)
    config.set_ignored_paths(paths=[SIGNATURE])
    signer = signing.Config().use_elliptic_key_signer(private_key=tmp_path / "key")
    signer.set_hashing_config(config).sign(folder, folder / SIGNATURE)
    (folder / ".gitattributes").write_bytes(b"*.onnx filter=lfs\n")
    assert verify(folder, folder / SIGNATURE, [TRUSTED]) == VerifiedSignature("release")


def test_the_librarys_own_command_makes_a_signature_that_counts(folder: Path, tmp_path: Path):
    (tmp_path / "key").write_bytes(private(KEY))
    command = [sys.executable, "-m", "model_signing", "sign", "key", str(folder)]
    command += ["--signature", str(folder / SIGNATURE), "--private_key", str(tmp_path / "key")]
    subprocess.run([*command], check=True, capture_output=True, timeout=180)
    assert verify(folder, folder / SIGNATURE, [TRUSTED]) == VerifiedSignature("release")


@pytest.mark.parametrize(
    "pem",
    [b"", b"nonsense", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
     public(KEY)[:80], public(ec.generate_private_key(ec.SECP256K1()))],
    ids=["empty", "nonsense", "certificate", "torn", "of another curve"],
)  # fmt: skip
def test_a_trusted_key_that_cannot_be_read_is_named(folder: Path, pem: bytes):
    signature = sign(folder, private(KEY))
    with pytest.raises(BadSignature, match="trusted key 'broken' cannot be read"):
        verify(folder, signature, [TrustedSigner("broken", pem), TRUSTED])


def certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Certificate | None,
    issuer_key: ec.EllipticCurvePrivateKey,
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    start = datetime.now(UTC) - timedelta(days=1)
    builder = x509.CertificateBuilder(
        issuer.subject if issuer else subject, subject, key.public_key(),
        x509.random_serial_number(), start, start + timedelta(days=30),
    )  # fmt: skip
    is_authority = issuer is None
    usage = x509.KeyUsage(
        not is_authority, False, False, False, False, is_authority, is_authority, False, False
    )
    builder = builder.add_extension(x509.BasicConstraints(is_authority, None), True)
    return builder.add_extension(usage, True).sign(issuer_key, hashes.SHA256())


def pem(made: x509.Certificate) -> bytes:
    return made.public_bytes(serialization.Encoding.PEM)


def test_a_certificate_of_a_trusted_authority_is_verified(folder: Path, tmp_path: Path):
    root = certificate("root", OTHER_KEY, None, OTHER_KEY)
    leaf = certificate("signer", KEY, root, OTHER_KEY)
    for name, content in (("key", private(KEY)), ("leaf", pem(leaf)), ("root", pem(root))):
        (tmp_path / name).write_bytes(content)
    signer = signing.Config().use_certificate_signer(
        private_key=tmp_path / "key",
        signing_certificate=tmp_path / "leaf",
        certificate_chain=[tmp_path / "root"],
    )
    config = hashing.Config().set_ignored_paths(paths=[SIGNATURE])
    signer.set_hashing_config(config).sign(folder, folder / SIGNATURE)
    authority = TrustedSigner("our authority", pem(root))
    assert verify(folder, folder / SIGNATURE, [TRUSTED, authority]) == VerifiedSignature(
        "our authority"
    )
    stranger = TrustedSigner("stranger", pem(certificate("root", KEY, None, KEY)))
    with pytest.raises(BadSignature, match="stranger"):
        verify(folder, folder / SIGNATURE, [stranger])


OFFLINE = """
import sys
from pathlib import Path

def hook(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto", "subprocess.Popen"):
        print("reached out:", event, arguments, file=sys.stderr, flush=True)
        import os
        os._exit(1)

sys.addaudithook(hook)
from repository.signing import TrustedSigner, sign, verify
folder = Path(sys.argv[1])
assert "model_signing" not in sys.modules
trusted = TrustedSigner("x", sys.stdin.buffer.read())
verify(folder, sign(folder, Path(sys.argv[2]).read_bytes()), [trusted])
"""


def test_nothing_goes_to_the_network_and_the_library_is_imported_late(folder: Path, tmp_path: Path):
    (tmp_path / "key").write_bytes(private(KEY))
    command = [sys.executable, "-c", OFFLINE, str(folder), str(tmp_path / "key")]
    done = subprocess.run(command, input=public(KEY), cwd=ROOT, capture_output=True, timeout=180)
    assert done.returncode == 0, done.stderr.decode()


def test_the_signature_covers_what_it_says(folder: Path):
    bundle = orjson.loads(sign(folder, private(KEY)).read_bytes())
    statement = orjson.loads(b64decode(bundle["dsseEnvelope"]["payload"]))
    names = [item["name"] for item in statement["predicate"]["resources"]]
    assert names == ["model.onnx", "sub/labels.txt"]
