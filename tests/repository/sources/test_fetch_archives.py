"""Archives from a web server: unpacked, within limits, and held to an expected digest."""

import io
import zipfile
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from repository.sources.errors import (
    BadArchive,
    BadSource,
    TooLarge,
    WrongDigest,
)
from support.fetched_files import BODY, digest_of, fetched, names, refusal
from support.sources import (
    MIB,
    Fault,
    File,
    Site,
    site,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def web() -> AsyncIterator[Site]:
    async with site() as made:
        yield made


@pytest.fixture
def into(tmp_path: Path) -> Path:
    return tmp_path / "staging"


def zipped(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, body in files.items():
            archive.writestr(name, body)
    return packed.getvalue()


FILES = {"config.pbtxt": b"name: 'm'", "1/model.onnx": BODY}


@pytest.mark.parametrize("wrapper", ["", "m-1.0/"])
async def test_an_archive_is_unpacked_without_the_folder_around_it(
    web: Site, into: Path, wrapper: str
) -> None:
    web.pages["/m.zip"] = File(zipped({wrapper + name: body for name, body in FILES.items()}))
    found = await fetched(web, into, "/m.zip")
    assert found.digest == digest_of(FILES)
    assert names(into) == sorted(FILES)


async def test_an_archive_may_hold_a_file_of_its_own_name(web: Site, into: Path) -> None:
    web.pages["/m.zip"] = File(zipped({"m.zip": b"inner", "m.onnx": b"x"}))
    await fetched(web, into, "/m.zip")
    assert (into / "m.zip").read_bytes() == b"inner"


async def test_what_an_earlier_unpacking_left_does_not_disturb(web: Site, into: Path) -> None:
    web.pages["/m.zip"] = File(zipped(FILES), faults=deque([Fault(cut=MIB)]))
    await refusal(web, into, "/m.zip")
    (into / ".unpacking" / "1").mkdir(parents=True)
    (into / ".unpacking" / "1" / "model.onnx").write_bytes(b"half")
    await fetched(web, into, "/m.zip")
    assert names(into) == sorted(FILES)


async def test_a_broken_archive_leaves_an_empty_folder(web: Site, into: Path) -> None:
    web.pages["/m.zip"] = File(b"no zip")
    with pytest.raises(BadArchive):
        await fetched(web, into, "/m.zip")
    assert names(into) == []


async def test_an_archive_that_unpacks_to_too_much_leaves_an_empty_folder(
    web: Site, into: Path
) -> None:
    web.pages["/m.zip"] = File(zipped({f"{number}.onnx": b"" for number in range(101)}))
    with pytest.raises(TooLarge):
        await fetched(web, into, "/m.zip")
    assert names(into) == []


async def test_an_archive_with_a_name_of_ours_is_refused(web: Site, into: Path) -> None:
    web.pages["/m.zip"] = File(zipped({"m/.fetch.jsonl": b"{}", "m/x": b""}))
    with pytest.raises(BadArchive, match="needs for itself"):
        await fetched(web, into, "/m.zip")


@pytest.mark.parametrize("name", ["/m.zip", "/m.onnx"])
async def test_another_digest_than_expected_is_refused_and_removed(
    web: Site, into: Path, name: str
) -> None:
    web.pages[name] = File(zipped(FILES))
    expected = f"sha256:{'0' * 64}"
    with pytest.raises(WrongDigest) as caught:
        await fetched(web, into, name, expected=expected)
    assert expected in str(caught.value)
    assert str(caught.value).count("sha256:") == 2
    assert names(into) == []


async def test_the_expected_digest_is_accepted_in_either_case(web: Site, into: Path) -> None:
    web.pages["/m.zip"] = File(zipped(FILES))
    expected = digest_of(FILES)
    assert (await fetched(web, into, "/m.zip", expected=expected)).digest == expected


async def test_a_digest_of_another_form_is_refused_before_anything_is_asked(
    web: Site, into: Path
) -> None:
    with pytest.raises(BadSource, match="write 'sha256:'"):
        await fetched(web, into, expected="md5:1")
    assert not web.requests
