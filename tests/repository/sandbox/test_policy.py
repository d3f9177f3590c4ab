"""What is decided about a process's sandbox, without entering one."""

from collections.abc import Iterable

import pytest

from repository.sandbox.policy import (
    ConfinedWorker,
    Kernel,
    SandboxEnvironment,
    SandboxFeature,
    is_secret,
    parser_sandbox,
    parts_of,
    report,
    sandbox_of,
    visible,
)

FULL = Kernel(7, seccomp=True)
TENANT = ConfinedWorker("/models/a", "/models/a/1", "/state/scratch/x", linked=("/blobs/w",))


def around(mode: str) -> SandboxEnvironment:
    return SandboxEnvironment(
        mode, ("/state", "/people/u"), ("/models",), ("/venv",), ("/usr",), ("/data",), ("/out",)
    )


def tree(*files: str) -> dict[str, set[tuple[str, bool]]]:
    """The entries of every folder; a name that ends with @ is a link."""
    found: dict[str, set[tuple[str, bool]]] = {}
    for file in files:
        parts = file.strip("/").split("/")
        for index, name in enumerate(parts):
            folder = "/" + "/".join(parts[:index])
            found.setdefault(folder, set()).add((name.removesuffix("@"), name.endswith("@")))
    return found


def seen(hidden: Iterable[str], *files: str, roots: Iterable[str] = ("/",)) -> set[str]:
    folders = tree(*files)
    return set(visible(roots, set(hidden), lambda path: sorted(folders.get(path, ()))))


def test_siblings_of_what_is_hidden_are_allowed_one_by_one() -> None:
    files = ("/etc/hosts", "/srv/app/state/db", "/srv/app/data/x", "/srv/other/y")
    assert seen(["/srv/app/state"], *files) == {"/etc", "/srv/app/data", "/srv/other"}


def test_links_beside_something_hidden_are_no_way_around() -> None:
    assert seen(["/srv/state"], "/srv/state/db", "/srv/alias@", "/srv/data/x") == {"/srv/data"}


def test_what_is_hidden_below_an_allowed_path_stays_hidden() -> None:
    files = ("/venv/lib/x", "/venv/state/db")
    assert seen(["/venv/state"], *files, roots=["/venv"]) == {"/venv/lib"}


def test_a_path_below_something_hidden_can_be_allowed_by_itself() -> None:
    files = ("/models/a/1/model.py", "/models/b/1/model.py")
    assert seen(["/models"], *files, roots=["/models/a"]) == {"/models/a"}


def test_something_hidden_that_does_not_exist_yet_hides_what_will_be_there() -> None:
    assert seen(["/srv/state"], "/srv/data/x", "/etc/hosts") == {"/srv/data", "/etc"}


def test_by_default_everything_may_be_read_but_the_hidden() -> None:
    made = sandbox_of(FULL, around("default"), TENANT._replace(network=True))
    assert made.everywhere
    assert made.execute
    assert made.network
    assert set(made.hidden) == {"/state", "/people/u", "/models"}
    assert set(made.readable) == {"/models/a", "/models/a/1", "/blobs/w", "/venv", "/data"}
    assert made.writable == ("/state/scratch/x", "/out")


def test_strict_reads_its_own_version_and_what_it_runs_on() -> None:
    made = sandbox_of(FULL, around("strict"), TENANT)
    assert not made.everywhere
    assert not made.execute
    assert not made.unix_sockets
    assert "/models/a" not in made.readable
    assert set(made.readable) == {"/models/a/1", "/blobs/w", "/venv", "/usr", "/data"}


def test_an_engine_may_start_compilers_and_write_its_cache_under_strict() -> None:
    tenant = TENANT._replace(compiles=True, caches=("/people/u/.cache/modelyard",))
    made = sandbox_of(FULL, around("strict"), tenant)
    assert made.execute
    assert "/people/u/.cache/modelyard" in made.writable


def test_only_a_worker_that_may_use_a_gpu_names_its_threads() -> None:
    for mode in ("default", "strict"):
        assert not sandbox_of(FULL, around(mode), TENANT).names_threads
        assert sandbox_of(FULL, around(mode), TENANT._replace(gpu=True)).names_threads
    assert not parser_sandbox(FULL, (), (), everywhere=True).names_threads


@pytest.mark.parametrize(
    ("kernel", "missing"),
    [
        (FULL, ()),
        (Kernel(5, seccomp=True), (SandboxFeature.SIGNALS,)),
        (Kernel(1, seccomp=True), (SandboxFeature.TCP, SandboxFeature.SIGNALS)),
        (
            Kernel(0, seccomp=True),
            (SandboxFeature.FILES, SandboxFeature.TCP, SandboxFeature.SIGNALS),
        ),
        (Kernel(7, seccomp=False), (SandboxFeature.CALLS,)),
        (Kernel(0, seccomp=False, linux=False), tuple(SandboxFeature)),
    ],
)
def test_the_parts_that_a_kernel_lacks_are_known(
    kernel: Kernel, missing: tuple[SandboxFeature, ...]
) -> None:
    assert set(SandboxFeature) - set(parts_of(kernel)) == set(missing)


def test_the_report_names_what_is_missing() -> None:
    assert "missing" not in report("default", FULL)
    said = report("default", Kernel(0, seccomp=True))
    assert "confines system calls, privileges, limits; missing: files are not confined" in said
    assert "not available" in report("default", Kernel(0, seccomp=False, linux=False))
    assert "off" in report("off", FULL)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MODELYARD_DATABASE", "x"),
        ("AWS_SECRET_ACCESS_KEY", "x"),
        ("GOOGLE_APPLICATION_CREDENTIALS", "/key.json"),
        ("HF_TOKEN", "x"),
        ("db_password", "x"),
        ("OPENAI_API_KEY", "x"),
        ("WAREHOUSE", "postgresql://u:p@host/db"),
        ("PGPASSWORD", "x"),
        ("PIP_INDEX_URL", "https://abc123@pypi.example.com/simple"),
        ("SENTRY_DSN", "https://key@sentry.example.com/1"),
    ],
)
def test_secrets_in_the_environment_are_known(name: str, value: str) -> None:
    assert is_secret(name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PATH", "/bin"),
        ("TOKENIZERS_PARALLELISM", "false"),
        ("CUDA_VISIBLE_DEVICES", "0"),
        ("HTTPS_PROXY", "http://u:p@proxy:3128"),
        ("ENDPOINT", "http://host:80/a@b"),
        ("PASSENGERS", "3"),
        ("SOURCE", "ssh://git@host/models.git"),
    ],
)
def test_other_variables_are_handed_on(name: str, value: str) -> None:
    assert not is_secret(name, value)
