"""What the deployer reads from the tables; each method is one look, and blocks."""

from contextlib import suppress

from sqlalchemy import select

from control import servers
from control.clock import utc_now
from control.deployments import pushes, repositories
from control.errors import NotFound
from control.push_states import PushState
from control.sql.database import Database
from control.tables import Counter, Push
from control.views import PushView, RepositoryView


class PushRows:
    """`boot`: this control process's, which tells it from other servers."""

    def __init__(self, database: Database, boot: str) -> None:
        self._database = database
        self._boot = boot

    def unfinished(self) -> list[PushView]:
        with self._database.reading() as session:
            return pushes.unfinished(session)

    def push(self, push_id: str) -> PushView:
        with self._database.reading() as session:
            return pushes.get_push(session, push_id)

    def repository(self, name: str) -> RepositoryView | None:
        with self._database.reading() as session, suppress(NotFound):
            return repositories.get_repository(session, name)
        return None

    def has_others(self) -> bool:
        """Whether another server is alive, which may be moving a ref this moment."""
        with self._database.reading() as session:
            return servers.others_alive(session, self._boot, utc_now())

    def knows(self, repository_id: str, ref: str, commit: str) -> bool:
        """Whether somebody pushed it, with success or not yet."""
        with self._database.reading() as session:
            query = select(Push.id).where(
                Push.repository_id == repository_id,
                Push.ref == ref,
                Push.new_commit == commit,
                Push.state.not_in((PushState.ABANDONED, PushState.REFUSED)),
            )
            return session.scalar(query.limit(1)) is not None

    def revision(self) -> int:
        """Of the desired state."""
        with self._database.reading() as session:
            number = session.scalar(select(Counter.value).where(Counter.name == "desired"))
            return int(number or 0)
