"""The broker that tells workers of jobs: its URL, and Celery as it is set up for it.

The `job` table is the truth; a message carries the id of a job and nothing else. It is acknowledged
when it arrives: a message that is lost with its worker is sent again by the sweeper, one that comes
twice finds nothing to claim.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from celery import Celery
from kombu.entity import Queue

TASK = "modelyard.job"
SCHEMES = ("filesystem", "redis", "rediss", "amqp", "amqps")
_FILESYSTEM = "filesystem"
_FOLDER_URL = "filesystem://localhost//"
_PREFIX = "modelyard."
_LOOK_SECS = 0.5
"""Between two looks of a worker into the folder of messages."""
_CONNECT_SECS = 5.0


class BadBroker(Exception):
    """A URL that names no broker; its text says what would."""


class Broker(NamedTuple):
    """A broker by its URL; of the kind "filesystem", `folder` is where its messages lie."""

    url: str
    folder: Path | None = None

    @property
    def shown(self) -> str:
        """For people: without a password."""
        if self.folder is not None:
            return str(self.folder)
        parts = urlsplit(self.url)
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def broker_of(url: str, own_folder: Path) -> Broker:
    """`url` "" is the folder `own_folder`. Raises BadBroker."""
    if not url:
        return Broker(_FOLDER_URL, own_folder)
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        raise BadBroker(
            f"a job broker cannot be '{parts.scheme or url:.40}'; give redis://HOST, amqp://HOST "
            "(RabbitMQ) or filesystem:///FOLDER"
        )
    if parts.scheme == _FILESYSTEM:
        if not parts.path.startswith("/") or parts.netloc:
            raise BadBroker("a folder as job broker is given as filesystem:///FOLDER")
        return Broker(_FOLDER_URL, Path(parts.path))
    return Broker(url)


def celery_app(broker: Broker, queues: Iterable[str]) -> Celery:
    """Celery for one program. Raises OSError where the broker's folder cannot be made."""
    app = Celery("modelyard", broker=broker.url, set_as_current=False)
    app.conf.update(
        task_serializer="json",
        accept_content=["json"],
        task_ignore_result=True,
        task_queues=[job_queue(broker, name) for name in queues],
        task_create_missing_queues=True,
        worker_prefetch_multiplier=1,
        worker_enable_remote_control=False,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_send_task_events=False,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_connection_timeout=_CONNECT_SECS,
        broker_transport_options=_options(broker),
        enable_utc=True,
    )
    return app


def job_queue(broker: Broker, name: str) -> Queue:
    """The broker's queue for a queue of jobs."""
    is_amqp = broker.url.startswith("amqp")
    arguments = {"x-queue-type": "quorum"} if is_amqp else None
    full = _PREFIX + name
    return Queue(  # type: ignore[no-untyped-call]
        full, routing_key=full, queue_arguments=arguments, durable=True
    )


def _options(broker: Broker) -> dict[str, Any]:
    if broker.folder is not None:
        folder = broker.folder
        for one in (folder / "messages", folder / "control"):
            one.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.chmod(folder, 0o700)
        return {
            "data_folder_in": str(folder / "messages"),
            "data_folder_out": str(folder / "messages"),
            "control_folder": str(folder / "control"),
            "store_processed": False,
            "polling_interval": _LOOK_SECS,
        }
    if broker.url.startswith("amqp"):
        return {"confirm_publish": True, "connect_timeout": _CONNECT_SECS}
    return {"socket_connect_timeout": _CONNECT_SECS, "socket_timeout": 30.0}
