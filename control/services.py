"""What the control API is given: database, clocks, limits, facts of this server, bells."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from anyio import CapacityLimiter

from control.access.last_use import LastUseBuffer
from control.access.rate_limits import LoginThrottle, RateLimiter
from control.access.recent_tokens import RecentTokens
from control.clock import utc_now
from control.drift.windows import USUAL_LIMIT_BYTES as DRIFT_LIMIT_BYTES
from control.events.event_notifier import EventNotifier
from control.events.event_stream import HEARTBEAT_S, SLOWEST_S
from control.gateways.link import GatewayUnreachable
from control.gateways.peers import ServerAnswers
from control.gateways.queries import LogLines, LogQuery, Query, RequestsQuery
from control.notifications.sender import WebhookSender
from control.routes.explanation import ExplainRoute
from control.series.cache import SeriesCache
from control.series.levels import USUAL_LIMIT_BYTES
from control.sql.database import Database
from control.views import SettingView

THREADS = 4
"""Endpoints that run at once: half of the database's connections, the rest is for pumps and git."""

STREAMS = 200
"""Who may follow the events at once."""

BACKUPS = 2
"""Backups taken at once: each holds a thread and a look at the database until it is fetched."""

WEBHOOK_TESTS = 4
"""Test messages under way at once: each waits for somebody else's server."""

PASSWORD_THREADS = 2
"""Passwords checked at once: each takes 64 MiB and some 50 ms of a core."""


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What does not change while the server runs. `public_url` is the setting, "" when not told.

    `hosts`: the names a Host header may have, from `control.authentication.hosts.known_hosts`.
    `import_allow`: prefixes of URLs that models may be imported from; see
    `repository.sources.urls.url`. `notification_allow`: of URLs that notifications are sent to; see
    `control.notifications.targets`. `series_limit` and `drift_limit`: bytes that time
    series and windows of drift may take. `model_folders`: model repositories that are folders.
    """

    server_id: str
    version: str
    store: Path
    hosts: frozenset[str]
    public_url: str
    settings: tuple[SettingView, ...] = ()
    import_allow: tuple[str, ...] = ()
    series_limit: int = USUAL_LIMIT_BYTES
    notification_allow: tuple[str, ...] = ()
    drift_limit: int = DRIFT_LIMIT_BYTES
    model_folders: tuple[Path, ...] = ()


AskGateway = Callable[[Query], Awaitable[Any]]
"""Gives the query's `Answer`; raises GatewayUnreachable."""


AskServers = Callable[[RequestsQuery], Awaitable[ServerAnswers]]
"""Asks the gateways of all servers; raises GatewayUnreachable where none answers."""


async def _no_gateway(_query: Query) -> Any:
    raise GatewayUnreachable("this control process knows no gateway")


@dataclass(frozen=True, slots=True)
class ControlServices:
    """Bundled by the composition root.

    `deployable` is called, on any thread, when a push or an import waits: the pumps' bell;
    `jobs_due` when a job waits, or is to end.
    `url` is where people and git reach us, once we listen: for links and the URLs to push to.
    `archive` writes a backup to a file; it blocks. `explain` says what a
    request to a route would get. `ask_gateway` asks this server's gateway
    something (`LinkServer.ask`), `ask_servers` those of all servers (`PeerGateways.ask`).
    `own_lines` gives the last lines of this process's log. `webhooks` sends test messages.
    `series` reads what charts are drawn of.
    """

    database: Database
    commits: EventNotifier
    facts: ServerFacts
    rates: RateLimiter
    failures: LoginThrottle
    archive: Callable[[IO[bytes]], object]
    explain: ExplainRoute
    ask_gateway: AskGateway = _no_gateway
    ask_servers: AskServers = _no_gateway
    own_lines: Callable[[LogQuery], LogLines] = lambda _: LogLines(())
    webhooks: WebhookSender = field(default_factory=WebhookSender)
    series: SeriesCache = field(default_factory=SeriesCache)
    deployable: Callable[[], object] = lambda: None
    jobs_due: Callable[[], object] = lambda: None
    url: Callable[[], str] = lambda: ""
    now: Callable[[], datetime] = utc_now
    monotonic: Callable[[], float] = time.monotonic
    heartbeat_s: float = HEARTBEAT_S
    slowest_s: float = SLOWEST_S
    uses: LastUseBuffer = field(default_factory=LastUseBuffer)
    good_tokens: RecentTokens = field(default_factory=RecentTokens)
    streams: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(STREAMS))
    backups: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(BACKUPS))
    webhook_tests: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(WEBHOOK_TESTS))
    threads: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(THREADS))
    password_threads: CapacityLimiter = field(
        default_factory=lambda: CapacityLimiter(PASSWORD_THREADS)
    )
