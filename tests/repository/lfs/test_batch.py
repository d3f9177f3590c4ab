"""The decisions of the batch API."""

from typing import Any

import orjson
import pytest

from repository.lfs.batch import (
    LfsLimits,
    LfsObjectRef,
    LfsObjectStatus,
    Links,
    TransferAction,
    parse,
    respond,
)
from repository.lfs.errors import BadBatch, BatchTooLarge, WrongAlgorithm

OID = "ab" * 32
LIMITS = LfsLimits(objects=3, object_bytes=1000)
NOTHING = LfsObjectStatus({})
LINKS = Links(
    upload=lambda oid, size: TransferAction(f"/put/{oid}/{size}", {"Authorization": "t"}, 3600),
    verify=lambda oid, size: TransferAction(f"/verify/{oid}", {}, 3600),
    download=lambda oid, size: TransferAction(f"/get/{oid}", {}, 60),
)


def body(operation: object = "upload", size: object = 10, **fields: object) -> bytes:
    objects = [{"oid": OID, "size": size}]
    return orjson.dumps({"operation": operation, "objects": objects, **fields})


def answer(request: bytes, known: LfsObjectStatus = NOTHING) -> dict[str, Any]:
    (found,) = respond(parse(request, LIMITS), known, LINKS, LIMITS)["objects"]
    assert isinstance(found, dict)
    return found


def test_a_request_of_git_lfs_is_read():
    request = body(
        transfers=["lfs-standalone-file", "basic", "ssh"],
        ref={"name": "refs/heads/main"},
        hash_algo="sha256",
    )
    batch = parse(request, LIMITS)
    assert (batch.operation, batch.objects, batch.ref) == (
        "upload",
        (LfsObjectRef(OID, 10),),
        "refs/heads/main",
    )


def test_an_object_to_upload_gets_its_links():
    found = answer(body())
    assert found["actions"]["upload"] == {
        "href": f"/put/{OID}/10",
        "header": {"Authorization": "t"},
        "expires_in": 3600,
    }
    assert set(found["actions"]) == {"upload", "verify"}
    assert found["authenticated"] is True


def test_an_object_that_is_there_is_not_uploaded_again():
    found = answer(body(), LfsObjectStatus({OID: 10}))
    assert found == {"oid": OID, "size": 10, "authenticated": True}


def test_an_object_to_download_gets_its_link():
    found = answer(body("download"), LfsObjectStatus({OID: 10}))
    assert found["actions"] == {"download": {"href": f"/get/{OID}", "header": {}, "expires_in": 60}}


@pytest.mark.parametrize(
    ("operation", "size", "known", "code"),
    [
        ("download", 10, NOTHING, 404),
        ("download", 10, LfsObjectStatus({}, {OID}), 410),
        ("download", 11, LfsObjectStatus({OID: 10}), 409),
        ("upload", 11, LfsObjectStatus({OID: 10}), 409),
        ("upload", -1, NOTHING, 422),
        ("upload", 1001, NOTHING, 422),
        ("upload", (1 << 64) - 1, NOTHING, 422),
    ],
)
def test_an_object_that_cannot_be_had_gets_its_own_error(
    operation: str, size: int, known: LfsObjectStatus, code: int
):
    found = answer(body(operation, size), known)
    assert found["error"]["code"] == code
    assert found["error"]["message"]
    assert "actions" not in found


@pytest.mark.parametrize("oid", ["", "AB" * 32, "../../etc/passwd", "ab" * 500])
def test_one_bad_oid_does_not_cost_the_others(oid: str):
    objects = [{"oid": oid, "size": 1}, {"oid": OID, "size": 1}]
    request = orjson.dumps({"operation": "upload", "objects": objects})
    found = respond(parse(request, LIMITS), NOTHING, LINKS, LIMITS)["objects"]
    assert found[0]["error"]["code"] == 422
    assert len(found[0]["oid"]) <= 200
    assert "actions" in found[1]


@pytest.mark.parametrize(
    "request_body",
    [
        b"",
        b"[]",
        b"{" * 5000,
        body("delete"),
        body(["upload"]),
        body(transfers=["ssh"]),
        body(transfers="basic,ssh"),
        body(objects={}),
        body(objects=[1]),
        body(objects=[{"oid": 1, "size": 1}]),
        body(objects=[{"oid": OID}]),
        body(size="10"),
        body(size=True),
        body(size=1.5),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_whole(request_body: bytes):
    with pytest.raises(BadBatch):
        parse(request_body, LIMITS)


def test_too_many_objects_are_refused():
    objects = [{"oid": OID, "size": 1}] * 4
    with pytest.raises(BatchTooLarge, match="4 objects; at most 3"):
        parse(orjson.dumps({"operation": "upload", "objects": objects}), LIMITS)


def test_another_hash_is_refused():
    with pytest.raises(WrongAlgorithm, match="sha256"):
        parse(body(hash_algo="sha512"), LIMITS)


def test_the_answer_can_be_written_as_json():
    assert orjson.dumps(respond(parse(body(), LIMITS), NOTHING, LINKS, LIMITS))
