"""Settings of offline jobs: who runs them, where workers get them, and what they may take."""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from control.jobs.policy.admission import QUEUE_NAME, USUAL_QUEUE
from server.settings.kinds import FILE, ValueKind, choice, seconds, setting, whole
from server.settings.residency import ResidencySettings
from server.settings.urls import without_password

_BROKERS = ("redis", "rediss", "amqp", "amqps")


def _read_broker(text: str) -> str:
    found = urlsplit(text)
    if found.scheme == "filesystem":
        if found.netloc or not found.path.strip("/"):
            raise ValueError
    elif found.scheme not in _BROKERS or not found.hostname:
        raise ValueError
    return text


def _read_queue(text: str) -> str:
    if QUEUE_NAME.fullmatch(text) is None:
        raise ValueError
    return text


QUEUE = ValueKind("NAME", "a name of letters, digits, _ and -", _read_queue, (str,))
BROKER = ValueKind(
    "URL",
    "of the form redis://HOST:PORT/NUMBER, amqp://USER:PASSWORD@HOST/ or filesystem:///FOLDER",
    _read_broker,
    (str,),
    shown=without_password,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSettings(ResidencySettings):
    """docs/jobs.md has the whole of it."""

    job_worker: str = setting(
        "Jobs",
        choice("on", "off"),
        "on",
        "Run a worker for offline jobs beside the server, started when the first job comes and "
        "ended when there has been none for a while; off: jobs wait for modelyard worker.",
    )
    job_broker: str = setting(
        "Jobs",
        BROKER,
        "",
        "Where jobs come from: Redis, RabbitMQ (a quorum queue) or a folder. All servers and "
        "workers of one database are given the same.",
        note="a folder in the state folder",
    )
    job_queue: tuple[str, ...] = setting(
        "Jobs",
        QUEUE,
        (USUAL_QUEUE,),
        "A queue whose jobs the worker runs; repeat it for several.",
        repeat=True,
    )
    job_slots: int = setting("Jobs", whole(1, 256), 1, "Jobs that a worker runs at the same time.")
    job_heavy_slots: int = setting(
        "Jobs",
        whole(1, 256),
        1,
        "Of them, those that keep cores busy or measure (quantise, prune, distil, profile) and run "
        "on one machine at the same time.",
    )
    job_idle_secs: float = setting(
        "Jobs", seconds(1), 60.0, "The worker beside the server ends after so long without a job."
    )
    job_environment_timeout_secs: float = setting(
        "Jobs",
        seconds(1),
        1800.0,
        "Longest the environment of a job's tool may take to be installed.",
    )
    job_data_dir: tuple[Path, ...] = setting(
        "Jobs",
        FILE,
        (),
        "A folder whose files a job's spec may name as data by their absolute paths; repeat it for "
        "several.",
        note="none",
        repeat=True,
    )
