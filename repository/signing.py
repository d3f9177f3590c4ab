"""Signatures of model versions, as OpenSSF's model-signing writes them; never uses the network.

The signature of version folder `<model>/<version>/` is the file `model.sig` in it, which is the
one file that it does not cover.
"""

import os
import re
import stat
from base64 import b64decode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson

from repository.errors import BadSignature, NoSigning
from repository.install_lines import install_line

SIGNATURE = "model.sig"
LARGEST_BYTES = 16 << 20
_UNSIGNED = frozenset((SIGNATURE, ".gitattributes", ".gitignore"))
"""Top-level files a signature need not cover: the library leaves git's own out by default."""

_HASH_TYPE = re.compile(r"(sha256|blake2|blake3)b?(-sharded-[0-9]+)?")

_MISMATCH = "Signature mismatch"
"""How the library begins when the signature is good and the files are not those signed."""


@dataclass(frozen=True, slots=True)
class TrustedSigner:
    """Who may sign: a name to show, and a PEM text.

    The text is an elliptic-curve public key (P-256, P-384 or P-521), or certificates: those of
    the authorities to which a signer's certificate must lead.
    """

    name: str
    pem: bytes

    @property
    def is_certificate(self) -> bool:
        return b"-----BEGIN CERTIFICATE-----" in self.pem


@dataclass(frozen=True, slots=True)
class VerifiedSignature:
    """The name of whose key, or whose authority, stands behind a signature."""

    signer: str


def verify(folder: Path, signature: Path, trusted: Sequence[TrustedSigner]) -> VerifiedSignature:
    """Hold every file of `folder` against `signature`; blocks while it reads them.

    Raises `BadSignature`, naming the file and what to do, or `NoSigning`.
    """
    library = _library()
    files = _files(folder)
    content = _read(signature)
    predicate = _predicate(signature, content)
    hashing = _hashing(library, signature, predicate)
    with _private_files(signature=content) as (place,):
        for candidate in trusted:
            config = _config(library, candidate).set_hashing_config(hashing)
            if _is_by(config, folder, place, candidate.name):
                _check_covered(signature, predicate, files)
                return VerifiedSignature(candidate.name)
    names = ", ".join(candidate.name for candidate in trusted) or "nobody"
    raise BadSignature(
        f"'{signature}' is not a signature by a trusted key ({names}); sign the version again "
        "with a trusted key, or have its key added to those trusted"
    )


def sign(folder: Path, private_key: bytes) -> Path:
    """Sign every file of `folder` with an elliptic-curve private key in PEM; says where.

    Replaces the signature that is there. Raises `BadSignature` for files that cannot be signed,
    ValueError for another kind of key, `NoSigning`.
    """
    library = _library()
    _files(folder)
    target = folder / SIGNATURE
    hashing = library.hashing.Config().set_ignored_paths(paths=[SIGNATURE], ignore_git_paths=False)
    with _private_files(key=private_key) as (key,):
        made = key.with_name("made")
        config = library.signing.Config().use_elliptic_key_signer(private_key=key)
        config.set_hashing_config(hashing).sign(folder, made)
        content = made.read_bytes()
    temp = target.with_name(f".{SIGNATURE}.{os.getpid()}")
    temp.write_bytes(content)
    os.replace(temp, target)
    return target


def _library() -> Any:
    """model-signing, imported when it is first needed: that takes half a second."""
    try:
        import model_signing
    except ImportError as error:
        line = install_line("signing")
        raise NoSigning(
            f"signatures need a package that is missing ({error}); install it with: {line}"
        ) from error
    return model_signing


def _files(folder: Path) -> list[str]:
    """Relative paths of all files; raises `BadSignature` for what cannot be signed."""
    found = []
    for base, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = f"{base}/{name}"
            mode = os.lstat(path).st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise BadSignature(
                    f"'{path}' is a link or no plain file; put the file itself there"
                )
            if stat.S_ISREG(mode):
                found.append(os.path.relpath(path, folder))
    if not set(found) - _UNSIGNED:
        raise BadSignature(f"'{folder}' has no file that a signature could cover; add the model")
    return found


def _read(signature: Path) -> bytes:
    try:
        with open(signature, "rb") as file:
            content = file.read(LARGEST_BYTES + 1)
    except OSError as error:
        remedy = "sign the version ('model_signing sign key') and add the file"
        raise BadSignature(f"'{signature}' cannot be read: {error.strerror}; {remedy}") from error
    if len(content) > LARGEST_BYTES:
        raise BadSignature(f"'{signature}' is larger than {LARGEST_BYTES} bytes; sign again")
    return content


@contextmanager
def _private_files(**contents: bytes) -> Iterator[list[Path]]:
    """Files that nobody else can read or change while they are used."""
    with TemporaryDirectory(prefix="modelyard-signing-") as name:
        paths = [Path(name, key) for key in contents]
        for path, content in zip(paths, contents.values(), strict=True):
            path.touch(mode=0o600)
            path.write_bytes(content)
        yield paths


def _predicate(signature: Path, content: bytes) -> dict[str, Any]:
    """What the signature says of the files; to be believed only once it was verified."""
    try:
        statement = orjson.loads(b64decode(orjson.loads(content)["dsseEnvelope"]["payload"]))
        predicate = statement["predicate"]
        _resources(predicate)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        remedy = "sign the version again with model-signing 1.0 or later"
        raise BadSignature(f"'{signature}' is not a model's signature; {remedy}") from error
    if not isinstance(predicate, dict):
        raise BadSignature(f"'{signature}' is not a model's signature; sign the version again")
    return predicate


def _hashing(library: Any, signature: Path, predicate: dict[str, Any]) -> Any:
    """The way of hashing that the signature names; the library's guess misses some of its own."""
    try:
        way = predicate["serialization"]
        config = library.hashing.Config()
        algorithm = _HASH_TYPE.sub(r"\1", way["hash_type"])
        if way["method"] == "shards":
            config.use_shard_serialization(
                hashing_algorithm=algorithm, shard_size=int(way["shard_size"])
            )
        else:
            config.use_file_serialization(hashing_algorithm=algorithm)
    except (ValueError, KeyError, TypeError) as error:
        offered = "sha256, blake2 and blake3 are offered, by files or by shards"
        raise BadSignature(f"'{signature}' hashes in a way of its own; {offered}") from error
    return config.set_ignored_paths(paths=[SIGNATURE])


def _is_by(config: Any, folder: Path, signature: Path, signer: str) -> bool:
    """Whether the signature is the signer's; raises `BadSignature` if it is, of other files."""
    try:
        config.verify(folder, signature)
    except Exception as error:  # its parsers raise anything; whatever it is: not verified
        if str(error).startswith(_MISMATCH):
            raise BadSignature(
                f"'{folder}' is not what '{signer}' signed: {str(error)[:500]}; "
                "restore the files, or sign the version again"
            ) from error
        return False
    return True


def _config(library: Any, candidate: TrustedSigner) -> Any:
    config = library.verifying.Config()
    with _private_files(pem=candidate.pem) as (pem,):
        try:
            if candidate.is_certificate:
                return config.use_certificate_verifier(certificate_chain=[pem])
            return config.use_elliptic_key_verifier(public_key=pem)
        except Exception as error:  # cryptography and OpenSSL each have trees of their own
            remedy = "give a P-256, P-384 or P-521 public key, or certificates, in PEM"
            raise BadSignature(
                f"trusted key '{candidate.name}' cannot be read: {error}; {remedy}"
            ) from error


def _check_covered(signature: Path, predicate: dict[str, Any], files: list[str]) -> None:
    """A signer may have left files out; raises `BadSignature` for one that we would use."""
    left_out = sorted(set(files) - set(_resources(predicate)) - _UNSIGNED)
    if left_out:
        raise BadSignature(
            f"'{signature}' leaves out '{left_out[0]}'; sign the version again with every file"
        )


def _resources(predicate: dict[str, Any]) -> list[str]:
    """Paths of the files that were signed."""
    names = [item["name"] for item in predicate["resources"]]
    if predicate["serialization"]["method"] == "shards":  # 'path:start:end'
        return [name.rsplit(":", 2)[0] for name in names]
    return names
