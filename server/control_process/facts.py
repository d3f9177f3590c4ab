"""What the control API is told of this server, out of its settings."""

from collections.abc import Iterator

from control.authentication.hosts import known_hosts
from control.services import ServerFacts
from control.views import SettingView
from server import VERSION
from server.settings.table import TABLE, Settings


def server_facts(settings: Settings, server: str) -> ServerFacts:
    return ServerFacts(
        server_id=server,
        version=VERSION,
        store=settings.store_folder,
        hosts=known_hosts(settings.admin_address, settings.public_url, settings.allowed_hosts),
        public_url=settings.public_url,
        settings=tuple(_shown(settings)),
        import_allow=settings.import_allow,
        series_limit=settings.series_limit,
        drift_limit=settings.drift_limit,
        notification_allow=settings.notification_allow,
        model_folders=tuple(settings.model_repository),
    )


def _shown(settings: Settings) -> Iterator[SettingView]:
    for row in TABLE:
        value = getattr(settings, row.name)
        yield SettingView(row.name, row.shown(value), settings.source(row.name), row.text)
