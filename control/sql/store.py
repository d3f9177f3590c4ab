"""Facts that a database and its store of snapshots have for good: made once, then the same."""

import secrets

from sqlalchemy.orm import Session

from control.clock import new_id
from control.sql.database import Transaction
from control.tables import Meta

STORE, SECRET = "store", "secret"


def store_id(tx: Transaction) -> str:
    """The id of the store that belongs to this database; the store's own file must say the same."""
    return _kept(tx, STORE, new_id(tx.now))


def secret(tx: Transaction) -> bytes:
    """32 random bytes that the servers of this database share, to sign short-lived tokens with."""
    return bytes.fromhex(_kept(tx, SECRET, secrets.token_hex(32)))


def known_store(session: Session) -> str:
    """The store's id, "" before there is one."""
    row = session.get(Meta, STORE)
    return row.value if row else ""


def _kept(tx: Transaction, key: str, new: str) -> str:
    row = tx.session.get(Meta, key)
    if row is None:
        tx.alone()
        row = tx.session.get(Meta, key)
    if row is None:
        row = Meta(key=key, value=new)
        tx.session.add(row)
        tx.happened("store.created" if key == STORE else "secret.created", f"meta:{key}")
    return row.value
