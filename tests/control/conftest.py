"""Every test below may ask for `database` and runs on SQLite and PostgreSQL then."""

from support.control import *  # noqa: F403
