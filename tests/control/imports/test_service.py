"""The rows of imports: what may be wished for, and each step of their life."""

import pytest

from control.deployments.deployment import owner_of
from control.deployments.repositories import create_repository
from control.deployments.versions import get_version
from control.errors import Conflict, Invalid, NotFound
from control.imports import service as imports
from control.sql.database import Database
from control.tables import Event, Import, Model
from control.views import ImportView
from repository.sources.progress import Progress
from support.control import ADA, all_text, desired_revision, rows, told
from support.control_deploy import deployed as pushed
from support.deployed import sealed

URL = "https://example.com/digits.onnx"
SEEN = Progress(10, 40, 0, 1, "digits.onnx", 5.0)


def begun(database: Database, url: str = URL, model: str = "digits") -> ImportView:
    with database.change(ADA) as tx:
        return imports.begin(tx, url, model)


def fetched(database: Database, import_id: str) -> None:
    with database.change(ADA) as tx:
        imports.start(tx, import_id)
    with database.change(ADA) as tx:
        imports.check(tx, import_id, "sha256:" + "a" * 64, SEEN)


def deployed(database: Database, *numbers: int) -> ImportView:
    view = begun(database)
    fetched(database, view.id)
    with database.change(ADA) as tx:
        return imports.deploy(tx, view.id, sealed("digits", *numbers), numbers[-1:])


def test_an_import_is_deployed_with_its_url_as_source(database: Database) -> None:
    before = desired_revision(database)
    view = deployed(database, 1)
    assert (view.state, dict(view.versions)) == ("deployed", {"1": f"{1:064x}"})
    assert desired_revision(database) == before + 1
    with database.reading() as session:
        version = get_version(session, "digits", 1)
        assert owner_of(session, "digits") is None
    found = version.provenance
    assert (found.source, found.pusher, found.repository) == (URL, "user:ada", None)


def test_a_later_import_of_the_same_model_replaces_its_snapshot(database: Database) -> None:
    deployed(database, 1)
    view = deployed(database, 1, 2)
    assert list(view.versions) == ["2"]
    assert rows(database, Model)[0].snapshot_digest == sealed("digits", 1, 2).digest


def test_every_step_can_be_repeated(database: Database) -> None:
    view = begun(database)
    for _ in range(2):
        fetched(database, view.id)
    for _ in range(2):
        with database.change(ADA) as tx:
            imports.deploy(tx, view.id, sealed("digits", 1), (1,))
    for _ in range(2):
        with database.change(ADA) as tx:
            imports.finish(tx, view.id, imports.ImportState.SERVED)
    kinds = [kind for kind, subject in told(database) if subject.startswith("import:")]
    assert len(kinds) == len(set(kinds)) == 5


def test_a_query_is_kept_for_the_fetch_shown_to_nobody_and_gone_at_the_end(
    database: Database,
) -> None:
    view = begun(database, f"{URL}?edition=hush")
    with database.reading() as session:
        assert imports.url_of(session, view.id) == f"{URL}?edition=hush"
    with database.change(ADA) as tx:
        view = imports.cancel(tx, view.id)
    assert view.url == rows(database, Import)[0].url == URL
    assert "hush" not in all_text(database) + str(view)


def test_of_progress_the_latest_event_is_kept(database: Database) -> None:
    view, other = begun(database), begun(database, model="other")
    with database.change(ADA) as tx:
        imports.start(tx, view.id)
        imports.start(tx, other.id)
    for import_id in (other.id, view.id, view.id):
        with database.change(ADA) as tx:
            imports.progress(tx, import_id, SEEN)
    events = [event for event in rows(database, Event) if event.kind == "import.progress"]
    assert [event.subject for event in events] == [f"import:{other.id}", f"import:{view.id}"]
    assert events[-1].data["bytes_done"] == 10
    with database.reading() as session:
        assert imports.get_import(session, view.id).progress == SEEN


def test_a_cancelled_import_takes_no_progress_and_cannot_be_deployed(database: Database) -> None:
    view = begun(database)
    fetched(database, view.id)
    with database.change(ADA) as tx:
        imports.cancel(tx, view.id)
    with pytest.raises(Conflict, match="is cancelled"), database.change(ADA) as tx:
        imports.progress(tx, view.id, SEEN)
    with pytest.raises(Conflict, match="cannot become deployed"), database.change(ADA) as tx:
        imports.deploy(tx, view.id, sealed("digits", 1), (1,))
    assert not rows(database, Model)


def test_a_deployed_import_cannot_be_cancelled(database: Database) -> None:
    view = deployed(database, 1)
    problem = "is deployed; it cannot become cancelled"
    with pytest.raises(Conflict, match=problem), database.change(ADA) as tx:
        imports.cancel(tx, view.id)


def test_a_model_of_a_repository_is_refused_naming_it(database: Database) -> None:
    with database.change(ADA) as tx:
        create_repository(tx, "vision")
    pushed(database, 1, sealed("digits", 1))
    with pytest.raises(Conflict, match="'digits' belongs to the repository 'vision'"):
        begun(database)


def test_the_same_wish_twice_is_refused_naming_the_first_until_it_is_deployed(
    database: Database,
) -> None:
    view = begun(database)
    with pytest.raises(Conflict, match=f"already: import {view.id}"):
        begun(database)
    fetched(database, view.id)
    with database.change(ADA) as tx:
        imports.deploy(tx, view.id, sealed("digits", 1), (1,))
    assert begun(database).id != view.id


@pytest.mark.parametrize(
    ("wish", "field", "reason"),
    [
        (("ftp://example.com/x.onnx", "m"), "url", "does not begin with one of"),
        (("https://ada:pw@example.com/x.onnx", "m"), "url", "has credentials in it"),
        (("https://example.com/x.onnx?token=hush", "m"), "url", "has credentials in it"),
        (("http://127.0.0.1:1/x.onnx", "m"), "url", "an address that is loopback"),
        (("http://169.254.169.254/x.onnx", "m"), "url", "link-local"),
        (("s3://bucket/m", "m"), "url", "--import-allow=s3://bucket/"),
        (("https://example.com/page.html", "m"), "url", "names no file that ends in one of"),
        ((URL, "a/b"), "model", "cannot name a model"),
        ((URL, ".m"), "model", "cannot be a folder's name"),
        ((URL, "m", 0), "version", "version is 0"),
        ((URL, "m", None, "sha256:12"), "digest", "is no digest"),
    ],
)
def test_a_wish_that_cannot_be_met_is_refused_at_once(
    database: Database, wish: tuple[str, ...], field: str, reason: str
) -> None:
    with pytest.raises(Invalid, match=reason) as caught, database.change(ADA) as tx:
        imports.begin(tx, *wish)  # type: ignore[arg-type]
    assert caught.value.field == field
    assert "hush" not in str(caught.value)
    assert not rows(database, Import)


def test_a_prefix_opens_buckets_and_private_addresses_and_closes_the_rest(
    database: Database,
) -> None:
    allowed = ("s3://bucket/models", "http://127.0.0.1:9/")
    for url in ("s3://bucket/models/m", "http://127.0.0.1:9/x.onnx"):
        with database.change(ADA) as tx:
            imports.begin(tx, url, "m", allowed=allowed)
    for url in ("s3://bucket/other", URL):
        problem = "not below an allowed source"
        with pytest.raises(Invalid, match=problem), database.change(ADA) as tx:
            imports.begin(tx, url, "m", allowed=allowed)


def test_imports_are_listed_newest_first_by_model_and_state(database: Database) -> None:
    first, second = begun(database), begun(database, model="other")
    with database.change(ADA) as tx:
        imports.cancel(tx, first.id)
    with database.reading() as session:
        listed = [view.id for view in imports.list_imports(session).items]
        of_model = imports.list_imports(session, model="other").items
        cancelled = imports.list_imports(session, state="cancelled").items
        waiting = imports.unfinished(session)
        with pytest.raises(Invalid, match="no state of an import"):
            imports.list_imports(session, state="gone")
        with pytest.raises(NotFound):
            imports.get_import(session, "nothing")
    assert set(listed) == {first.id, second.id}
    assert [view.id for view in of_model] == [view.id for view in waiting] == [second.id]
    assert [view.id for view in cancelled] == [first.id]
