"""Fixtures of `support.control` and `support.api_fixtures`: `database` runs a test on SQLite and
PostgreSQL."""

from support.api_fixtures import *  # noqa: F403
from support.control import *  # noqa: F403
from support.passwords import cheap_passwords  # noqa: F401
