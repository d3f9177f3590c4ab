"""Every test below may ask for `database` and runs on SQLite and PostgreSQL then."""

from control_support import *  # noqa: F403
