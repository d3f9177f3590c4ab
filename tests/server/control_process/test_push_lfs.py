"""Git LFS the whole way: the stock clients, the admin port, the checks, the snapshot, served."""

import json
import random
import shutil
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from repository.lfs import pointer
from repository.lfs.pointer import Pointer
from repository.snapshots import stored
from support.git_server import LFS_SETTINGS, cutting, needs_lfs
from support.imports import onnx_model
from support.refusals import refused
from support.yard import Yard, yard

pytestmark = [needs_lfs, pytest.mark.slow]

MIB = 2**20


@pytest.fixture(scope="module")
def y(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    with yard(tmp_path_factory.mktemp("yard")) as made:
        yield made


def tracked(y: Yard, name: str, **settings: Any) -> Path:
    """A working copy whose *.onnx and *.bin files go to Git LFS."""
    work = y.repository(name, **settings)
    for setting, value in LFS_SETTINGS.items():
        y.git(work, "config", setting, value)
    y.git(work, "lfs", "install", "--local")
    (work / ".gitattributes").write_text("*.onnx filter=lfs -text\n*.bin filter=lfs -text\n")
    return work


def put(work: Path, model: str, content: bytes) -> Path:
    path = work / "models" / model / "1" / "model.onnx"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    return path


def test_a_model_in_git_lfs_is_served_out_of_the_store_without_a_copy(y: Yard) -> None:
    work, content = tracked(y, "linked"), onnx_model(padding_bytes=2 * MIB)
    put(work, "linked", content)
    y.commit(work, "in Git LFS")
    assert "served: linked" in y.push(work)
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}
    status, answer = y.server.post("/v2/models/linked/infer", body)
    assert (status, json.loads(answer)["outputs"][0]["data"]) == (200, [2, 4, 6, 8])
    digest = y.api("GET", "/models/linked")[1]["snapshot"]
    served = y.state / "store/snapshots" / digest / "linked/1/model.onnx"
    oid = sha256(content).hexdigest()
    kept = y.state / f"store/lfs/objects/{oid[:2]}/{oid[2:4]}/{oid}"
    assert served.stat().st_ino == kept.stat().st_ino


def test_a_pointer_with_another_size_than_its_object_is_refused(y: Yard) -> None:
    work, content = tracked(y, "lying"), onnx_model(3.0)
    path = put(work, "lying", content)
    y.commit(work, "honest")
    y.push(work, "main:refs/heads/upload")
    (work / ".gitattributes").unlink()
    path.write_bytes(pointer.write(Pointer(sha256(content).hexdigest(), len(content) + 1)))
    y.commit(work, "a lie")
    assert "this object has" in y.push(work, ok=False)  # git-lfs asks before it pushes
    y.git(work, "config", "core.hooksPath", "/dev/null")
    refused(
        y,
        work,
        says=f"models/lying/1/model.onnx E431 says its LFS object has {len(content) + 1} bytes and "
        f"it has {len(content)}; add the file again with git-lfs installed",
    )


def test_an_object_that_only_another_repository_has_is_missing_here(y: Yard) -> None:
    work, content = tracked(y, "owner"), onnx_model(4.0)
    put(work, "owner", content)
    y.commit(work, "mine")
    y.push(work)
    other = y.repository("borrower")
    put(other, "borrower", pointer.write(Pointer(sha256(content).hexdigest(), len(content))))
    y.commit(other, "a pointer to what is somebody else's")
    refused(y, other, says="models/borrower/1/model.onnx E430 points to the LFS object")


def test_an_object_damaged_in_the_store_is_refused(y: Yard) -> None:
    work, content = tracked(y, "rotten"), onnx_model(5.0)
    put(work, "rotten", content)
    y.commit(work, "whole")
    y.push(work, "main:refs/heads/upload")
    oid = sha256(content).hexdigest()
    kept = y.state / f"store/lfs/objects/{oid[:2]}/{oid[2:4]}/{oid}"
    kept.chmod(0o600)
    kept.write_bytes(bytes(reversed(content)))
    refused(y, work, says="models/rotten/1/model.onnx E431 ")


@pytest.mark.slow
def test_200_megabytes_are_pushed_served_and_cloned_over_a_line_that_breaks(y: Yard) -> None:
    content = onnx_model(6.0, padding_bytes=0)
    work = tracked(y, "large", formats=["onnx", "torch", "text", "config"])
    put(work, "large", content)
    large = random.Random(7).randbytes(200 * MIB)
    (work / "models/large/1/more.bin").write_bytes(large)
    y.commit(work, "200 MB")
    assert "served: large" in y.push(work)
    with cutting(y.admin_port, 90 * MIB) as port:
        url = y.url("large").replace(str(y.admin_port), str(port))
        settings = [word for one in LFS_SETTINGS.items() for word in ("-c", "=".join(one))]
        y.git(y.folder, *settings, "clone", "-q", url, "copy")
    assert (y.folder / "copy/models/large/1/more.bin").read_bytes() == large
    shutil.rmtree(y.folder / "copy")
    digest = y.api("GET", "/models/large")[1]["snapshot"]
    stored.verify(y.state / "store/snapshots", digest)
