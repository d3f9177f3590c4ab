"""The tokens that gateways know."""

from datetime import timedelta

from control.access.grants import grants
from control.access.tokens import create_token, digest_of, revoke_token
from control.access.users import change_user, create_user
from control.clock import utc_now
from control.desired import TokenGrant
from control.sql.database import Database
from support.control import ADA


def granted(database: Database, days: float = 0) -> tuple[TokenGrant, ...]:
    with database.reading() as session:
        return grants(session, utc_now() + timedelta(days=days))


def test_gateways_know_live_tokens_by_their_digests_and_terms(database: Database) -> None:
    with database.change(ADA) as tx:
        create_user(tx, "ada", "admin")
        create_user(tx, "grace", "viewer")
        limited = create_token(tx, "grace", "ci", ["infer:m", "read"], rate_per_s=5, burst=9)
        endless = create_token(tx, "ada", "ops", ["admin"], expires_in_s=0)
    expected = [
        TokenGrant(
            digest=digest_of(limited.text),
            token_id=limited.view.id,
            principal=f"user:grace/token:{limited.view.id}",
            role="viewer",
            scopes=("infer:m", "read"),
            expires=(tx.now + timedelta(days=90)).timestamp(),
            rate_per_s=5.0,
            burst=9,
        ),
        TokenGrant(
            digest=digest_of(endless.text),
            token_id=endless.view.id,
            principal=f"user:ada/token:{endless.view.id}",
            role="admin",
            scopes=("admin",),
        ),
    ]
    assert granted(database) == tuple(sorted(expected, key=lambda grant: grant.token_id))


def test_revoked_and_expired_tokens_and_those_of_the_disabled_are_not_known(
    database: Database,
) -> None:
    with database.change(ADA) as tx:
        create_user(tx, "ada", "admin")
        create_user(tx, "grace", "viewer")
        create_user(tx, "eve", "viewer")
        kept = create_token(tx, "ada", "kept", ["admin"], expires_in_s=0)
        create_token(tx, "ada", "expires", ["read"])
        revoked = create_token(tx, "grace", "revoked", ["read"], expires_in_s=200 * 86_400)
        create_token(tx, "eve", "ended", ["read"], expires_in_s=200 * 86_400)
    assert len(granted(database)) == 4
    with database.change(ADA) as tx:
        revoke_token(tx, revoked.view.id)
        change_user(tx, "eve", disabled=True)
    assert len(granted(database)) == 2
    assert [grant.token_id for grant in granted(database, days=91)] == [kept.view.id]


def test_a_grant_has_its_users_role_of_today(database: Database) -> None:
    with database.change(ADA) as tx:
        create_user(tx, "grace", "operator")
        create_token(tx, "grace", "ci", ["operate"])
        change_user(tx, "grace", role="viewer")
    assert [grant.role for grant in granted(database)] == ["viewer"]
