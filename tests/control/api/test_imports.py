"""The control API's imports: who may wish for one, what is answered, how it is given up."""

from support.admin import Api

URL = "https://example.com/digits.onnx"


def test_an_import_is_begun_shown_listed_and_cancelled(running: Api) -> None:
    made = running.local("POST", "/imports", {"url": f"{URL}?a=b", "model": "digits", "version": 3})
    assert made.status == 202
    assert (made.json["state"], made.json["url"], made.json["version"]) == ("queued", URL, 3)
    assert made.headers["location"] == f"/api/v1/imports/{made.json['id']}"
    assert running.bells
    one = running.local("GET", f"/imports/{made.json['id']}")
    assert one.json == made.json
    listed = running.local("GET", "/imports?model=digits&state=queued").json["items"]
    assert listed == [made.json]
    gone = running.local("POST", f"/imports/{made.json['id']}/cancel")
    assert (gone.status, gone.json["state"]) == (200, "cancelled")
    assert running.local("POST", f"/imports/{made.json['id']}/cancel").status == 200
    assert running.local("GET", "/imports?state=queued").json["items"] == []


def test_what_cannot_be_imported_is_refused_naming_the_field(running: Api) -> None:
    for body, field in (
        ({"url": "s3://bucket/m", "model": "m"}, "url"),
        ({"url": "http://10.0.0.1/m.onnx", "model": "m"}, "url"),
        ({"url": URL, "model": "a/b"}, "model"),
        ({"url": URL, "model": "m", "digest": "md5:1"}, "digest"),
    ):
        refused = running.local("POST", "/imports", body)
        assert (refused.status, refused.json["error"]["field"]) == (422, field)


def test_an_import_takes_the_right_to_change_what_is_served(running: Api) -> None:
    running.user("ada", "operator")
    body = {"url": URL, "model": "m"}
    reads, operates = running.token("ada", "read"), running.token("ada", "operate")
    assert running.ask("POST", "/imports", body, token=reads).status == 403
    made = running.ask("POST", "/imports", body, token=operates)
    assert made.status == 202
    assert made.json["by"].startswith("user:ada") or made.json["by"].startswith("token:")
    path = f"/imports/{made.json['id']}"
    assert running.ask("GET", path, token=reads).status == 200
    assert running.ask("POST", f"{path}/cancel", token=reads).status == 403
    assert running.ask("GET", path).status == 401
