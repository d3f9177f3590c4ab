"""Archives, honest and hostile, unpacked on a real disk."""

import gzip
import io
import os
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest

from repository.sources.archives.tars import zstd
from repository.sources.archives.unpack import RATIO_FROM_BYTES, unpack, why_unreadable
from repository.sources.errors import BadArchive, TooLarge
from repository.sources.limits import FetchLimits
from repository.sources.threads import Stopped

LIMITS = FetchLimits(max_bytes=1 << 30, max_files=50)
FILES = {"m/config.pbtxt": b"name: 'm'", "m/1/model.onnx": os.urandom(3000)}

Pack = Callable[[Path, dict[str, bytes]], Path]


def packed_zip(folder: Path, files: dict[str, bytes]) -> Path:
    path = folder / "m.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.mkdir("m")
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def packed_tar(folder: Path, files: dict[str, bytes], ending: str = ".tar") -> Path:
    path = folder / f"m{ending}"
    with tarfile.open(path, "w:gz" if ending != ".tar" else "w") as archive:
        archive.addfile(member("m", type=tarfile.DIRTYPE))
        for name, content in files.items():
            archive.addfile(member(name, size=len(content)), io.BytesIO(content))
    return path


def packed_tgz(folder: Path, files: dict[str, bytes]) -> Path:
    return packed_tar(folder, files, ".tgz")


def member(name: str, **attributes: object) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    for key, value in attributes.items():
        setattr(made, key, value)
    return made


every_kind = pytest.mark.parametrize("pack", [packed_zip, packed_tar, packed_tgz])


def unpacked(path: Path, limits: FetchLimits = LIMITS) -> list[str]:
    return unpack(path, path.parent / "out", limits, Event())


@every_kind
def test_an_archive_is_unpacked_as_it_was_packed(tmp_path: Path, pack: Pack) -> None:
    assert sorted(unpacked(pack(tmp_path, FILES))) == sorted(FILES)
    for name, content in FILES.items():
        assert (tmp_path / "out" / name).read_bytes() == content


@every_kind
@pytest.mark.parametrize(
    "name", ["../x", "/etc/x", "m/../../x", "m\\..\\x", "m//x", "m/./x", "x" * 300, "m/\x07"]
)
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, pack: Pack, name: str) -> None:
    path = pack(tmp_path, {"m/ok": b"", name: b"evil"})
    with pytest.raises(BadArchive, match=r"m\.(zip|tar|tgz)"):
        unpacked(path)
    assert {one.name for one in tmp_path.rglob("*") if one.is_file()} <= {path.name, "ok"}


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (tarfile.SYMTYPE, "symbolic link"),
        (tarfile.LNKTYPE, "hard link"),
        (tarfile.CHRTYPE, "device"),
        (tarfile.BLKTYPE, "device"),
        (tarfile.FIFOTYPE, "pipe"),
    ],
)
def test_a_tar_with_anything_but_plain_files_is_refused(
    tmp_path: Path, kind: bytes, reason: str
) -> None:
    path = tmp_path / "m.tar"
    with tarfile.open(path, "w") as archive:
        archive.addfile(member("m/x", type=kind, linkname="/etc/passwd"))
    with pytest.raises(BadArchive, match=reason):
        unpacked(path)


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFIFO])
def test_a_zip_with_anything_but_plain_files_is_refused(tmp_path: Path, kind: int) -> None:
    info = zipfile.ZipInfo("m/x")
    info.external_attr = (kind | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "m.zip", "w") as archive:
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(BadArchive, match="only plain files"):
        unpacked(tmp_path / "m.zip")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_zip_packed_in_a_way_that_takes_memory_is_refused(tmp_path: Path, method: int) -> None:
    with zipfile.ZipFile(tmp_path / "m.zip", "w", method) as archive:
        archive.writestr("m/x", b"x" * 100)
    with pytest.raises(BadArchive, match="stored or deflated"):
        unpacked(tmp_path / "m.zip")


@every_kind
def test_more_bytes_than_the_limit_are_refused_before_they_are_written(
    tmp_path: Path, pack: Pack
) -> None:
    path = pack(tmp_path, {"m/a": bytes(900), "m/b": bytes(5_000_000)})
    with pytest.raises(TooLarge, match="unpacks to more than the limit of 1000000 bytes"):
        unpacked(path, FetchLimits(max_bytes=1_000_000, max_files=50))
    assert sum(one.stat().st_size for one in (tmp_path / "out").rglob("*")) < 1_100_000


@pytest.mark.parametrize("pack", [packed_zip, packed_tgz])
def test_a_bomb_is_refused_by_its_ratio(tmp_path: Path, pack: Pack) -> None:
    path = pack(tmp_path, {"m/bomb": bytes(RATIO_FROM_BYTES + 1)})
    with pytest.raises(TooLarge, match="unpacks to more than 200 times its size"):
        unpacked(path)


@every_kind
def test_more_files_than_the_limit_are_refused(tmp_path: Path, pack: Pack) -> None:
    path = pack(tmp_path, {f"m/{number}": b"" for number in range(51)})
    with pytest.raises(TooLarge, match="more than 50 files"):
        unpacked(path)


def test_a_zip_with_an_endless_directory_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = packed_zip(tmp_path, {f"m/{number}/{'x' * 200}": b"" for number in range(400)})
    with pytest.raises(TooLarge, match="going by its directory"):
        unpacked(path)


def test_a_tar_of_endless_folders_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.tar"
    with tarfile.open(path, "w") as archive:
        for number in range(1200):
            archive.addfile(member(f"m/{number}", type=tarfile.DIRTYPE))
    with pytest.raises(BadArchive, match="more than 1100 entries"):
        unpacked(path)


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_tar_header_that_would_fill_the_memory_is_refused(tmp_path: Path, kind: bytes) -> None:
    path = tmp_path / "m.tgz"
    with gzip.open(path, "wb", 1) as file:
        file.write(member("x", type=kind, size=1 << 40).tobuf(tarfile.GNU_FORMAT))
        file.write(bytes(10_000))
    with pytest.raises(BadArchive, match="has a header of 1099511627776 bytes"):
        unpacked(path)


def test_a_sparse_file_in_a_tar_is_refused(tmp_path: Path) -> None:
    for number, headers in enumerate(
        ({"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}, {"GNU.sparse.map": "0,1"})
    ):
        path = tmp_path / f"{number}.tar"
        with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
            archive.addfile(member("m/x", size=4, pax_headers=headers), io.BytesIO(b"1\n0\n"))
        with pytest.raises(BadArchive, match="sparse"):
            unpacked(path)


@every_kind
@pytest.mark.parametrize("kept", [0, 40, 700, 3000])
def test_a_truncated_archive_is_refused(tmp_path: Path, pack: Pack, kept: int) -> None:
    path = pack(tmp_path, FILES)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(BadArchive, match="m\\."):
        unpacked(path)


def test_a_zip_whose_bytes_were_damaged_is_refused(tmp_path: Path) -> None:
    path = packed_zip(tmp_path, FILES)
    content = bytearray(path.read_bytes())
    content[-1500] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(BadArchive, match="damaged"):
        unpacked(path)


@every_kind
def test_a_name_that_is_there_twice_is_refused(tmp_path: Path, pack: Pack) -> None:
    path = pack(tmp_path, {"m/x": b"1", "m/x/y": b"2"})
    with pytest.raises(BadArchive, match=r"another's folder|file and a folder"):
        unpacked(path)


def test_what_a_mac_adds_is_left_out(tmp_path: Path) -> None:
    path = packed_zip(tmp_path, {**FILES, "__MACOSX/m/._x": b"", "m/.DS_Store": b""})
    assert sorted(unpacked(path)) == sorted(FILES)


def test_an_archive_without_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadArchive, match="has no file in it"):
        unpacked(packed_zip(tmp_path, {}))


def test_unpacking_ends_when_it_is_told_to(tmp_path: Path) -> None:
    stop = Event()
    stop.set()
    with pytest.raises(Stopped):
        unpack(packed_zip(tmp_path, FILES), tmp_path / "out", LIMITS, stop)


def test_zstd_is_offered_where_it_can_be_read() -> None:
    assert (why_unreadable("m.tar.zst") is None) == (zstd() is not None)
    assert why_unreadable("m.tar.gz") is None
