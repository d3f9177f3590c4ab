"""What nobody can use any more goes, later."""

from datetime import timedelta

from control.access.invitations import first_link_code
from control.access.sessions import open_session
from control.access.sweep import sweep
from control.access.tokens import create_token, revoke_token
from control.access.users import create_user
from control.sql.database import Database
from control.tables import Audit, Invitation, Session, Token
from support.control import ADA, rows


def test_dead_rows_go_after_a_while_and_live_ones_stay(database: Database) -> None:
    with database.change(ADA) as tx:
        first_link_code(tx)
        create_user(tx, "ada", "admin")
        open_session(tx, "ada", "")
        endless = create_token(tx, "ada", "endless", ["read"], expires_in_s=0)
        expires = create_token(tx, "ada", "expires", ["read"])
        revoked = create_token(tx, "ada", "revoked", ["read"], expires_in_s=0)
        revoke_token(tx, revoked.view.id)
    audited = len(rows(database, Audit))

    def left_after(days: float) -> tuple[set[str], int, int]:
        with database.change(ADA) as tx:
            tx.now += timedelta(days=days)
            sweep(tx)
        kept = {row.id for row in rows(database, Token)}
        return kept, len(rows(database, Session)), len(rows(database, Invitation))

    tokens = {one.view.id for one in (endless, expires, revoked)}
    assert left_after(0.4) == (tokens, 1, 1)
    assert left_after(1.1) == (tokens, 0, 0)
    assert left_after(91) == (tokens - {revoked.view.id}, 0, 0)
    assert left_after(181) == ({endless.view.id}, 0, 0)
    assert len(rows(database, Audit)) == audited
