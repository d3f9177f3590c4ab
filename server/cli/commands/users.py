"""`modelyard user …`, `modelyard token …` and `modelyard login-link`."""

import argparse
import re
from typing import Any

from control.access.views import CreatedTokenView, InvitationView, MeView, TokenView, UserView
from server.cli.commands.client import ApiClient, path_of
from server.cli.commands.command import CliCommand, CommandFailed, argument, whole
from server.cli.commands.output import (
    Columns,
    ListOutput,
    MessageOutput,
    RecordOutput,
    Shown,
    local_time,
)
from server.cli.commands.secret_input import (
    UnreadableSecret,
    at_a_terminal,
    prompt_password,
    read_secret,
)

_ROLES = ("viewer", "operator", "admin")
_USER_COLUMNS: Columns = {
    "name": "name",
    "role": "role",
    "password": "has_password",
    "created": "created_at",
    "disabled": "disabled_at",
}
_TOKEN_COLUMNS: Columns = {
    "id": "id",
    "user": "user",
    "name": "name",
    "hint": "hint",
    "scopes": "scopes",
    "expires": "expires_at",
    "last used": "last_used_at",
    "revoked": "revoked_at",
}
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(r"(\d{1,9})([smhd])")

_PASSWORD = (
    argument("--password-file", "Take the password from a file's first line; - for stdin."),
    argument("--ask-password", "Ask for the password on the terminal.", action="store_true"),
)


_WITHOUT_PASSWORD = (
    ", without a password: {0} cannot log in to the console, and can only use tokens "
    "(`modelyard token create`); `modelyard user change {0} --password-file FILE`, with - for "
    "stdin, or --ask-password gives {0} a password"
)


class NothingToChange(CommandFailed):
    """A change of a user that says nothing of what is to be changed."""


def list_users(given: argparse.Namespace, api: ApiClient) -> Shown:
    return ListOutput(list(api.items("/users", UserView)), _USER_COLUMNS)


def add_user(given: argparse.Namespace, api: ApiClient) -> Shown:
    password = _password(given)
    if password is None and at_a_terminal():
        password = prompt_password(given.NAME, " (Enter for none)") or None
    body = {"name": given.NAME, "role": given.role, "password": password}
    made = api.call("POST", "/users", UserView, body)
    sentence = f"user {made.name} created, role {made.role}"
    return MessageOutput(
        sentence if password else sentence + _WITHOUT_PASSWORD.format(made.name), made
    )


def change_user(given: argparse.Namespace, api: ApiClient) -> Shown:
    fields: dict[str, Any] = {"role": given.role, "password": _password(given)}
    if given.enable:
        fields["disabled"] = False
    body = {name: value for name, value in fields.items() if value is not None}
    if not body:
        raise NothingToChange("give --role, --enable, --password-file or --ask-password")
    made = api.call("PATCH", path_of("users", given.NAME), UserView, body)
    return MessageOutput(f"user {made.name} changed, role {made.role}", made)


def disable_user(given: argparse.Namespace, api: ApiClient) -> Shown:
    made = api.call("PATCH", path_of("users", given.NAME), UserView, {"disabled": True})
    return MessageOutput(f"user {made.name} disabled; sessions ended, tokens revoked", made)


def list_tokens(given: argparse.Namespace, api: ApiClient) -> Shown:
    items = api.items("/tokens", TokenView, user=given.user)
    live = [one for one in items if given.all or one.revoked_at is None]
    return ListOutput(live, _TOKEN_COLUMNS)


def create_token(given: argparse.Namespace, api: ApiClient) -> Shown:
    body = {
        "name": given.NAME,
        "scopes": given.scope,
        "user": given.user,
        "expires_in_s": given.expires,
        "rate_per_s": given.rate,
        "burst": given.burst,
    }
    body = {name: value for name, value in body.items() if value is not None}
    made = api.call("POST", "/tokens", CreatedTokenView, body)
    token = made.token
    ends = f"expires {local_time(token.expires_at)}" if token.expires_at else "never expires"
    return MessageOutput(
        f"token {token.id} of {token.user}, {ends}; it is shown only once", made, made.text
    )


def revoke_token(given: argparse.Namespace, api: ApiClient) -> Shown:
    api.delete(path_of("tokens", given.ID))
    return MessageOutput(f"token {given.ID} revoked")


def whoami(given: argparse.Namespace, api: ApiClient) -> Shown:
    return RecordOutput(api.get("/me", MeView))


def login_link(given: argparse.Namespace, api: ApiClient) -> Shown:
    made = api.call("POST", "/invitations", InvitationView)
    return MessageOutput("this link creates the first admin, once, within a day", made, made.url)


def seconds(text: str) -> int:
    """ "90d" → seconds; "never" → 0."""
    if text == "never":
        return 0
    found = _DURATION.fullmatch(text)
    if found is None or int(found[1]) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is no duration; give 30m, 12h, 90d or never")
    return int(found[1]) * _UNITS[found[2]]


def _password(given: argparse.Namespace) -> str | None:
    if given.password_file and given.ask_password:
        raise UnreadableSecret("give either --password-file or --ask-password")
    if given.password_file:
        return read_secret(given.password_file)
    if not given.ask_password:
        return None
    if not (password := prompt_password(given.NAME)):
        raise UnreadableSecret(f"no password was given for {given.NAME}")
    return password


_NAME = argument("NAME", "The user's name.")

COMMANDS = (
    CliCommand("user list", "list the users", list_users),
    CliCommand(
        "user add",
        "create a user; asks for a password on a terminal, without one it only has tokens",
        add_user,
        (
            _NAME,
            argument("--role", "What the user may do.", choices=_ROLES, required=True),
            *_PASSWORD,
        ),
    ),
    CliCommand(
        "user change",
        "give a user another role or password, or enable it again",
        change_user,
        (
            _NAME,
            argument("--role", "Another role.", choices=_ROLES),
            argument("--enable", "Enable a disabled user.", action="store_true"),
            *_PASSWORD,
        ),
    ),
    CliCommand("user disable", "end a user's sessions and tokens at once", disable_user, (_NAME,)),
    CliCommand(
        "token list",
        "list tokens that can be used",
        list_tokens,
        (
            argument("--user", "Only this user's."),
            argument("--all", "Revoked ones too.", action="store_true"),
        ),
    ),
    CliCommand(
        "token create",
        "create a token and print its text, which is shown only once",
        create_token,
        (
            argument("NAME", "What the token is for."),
            argument("--user", "Whose it is; oneself if not given."),
            argument(
                "--scope",
                "infer:MODEL, push:REPOSITORY:REF, priority:-N, read, operate or admin; repeat it "
                "for several.",
                action="append",
                required=True,
            ),
            argument("--expires", "30m, 12h, 90d or never (admins only). [90d]", type=seconds),
            argument("--rate", "Requests a second at most. [not limited]", type=float),
            argument("--burst", "Requests at once after a rest. [--rate]", type=whole),
        ),
    ),
    CliCommand(
        "token revoke",
        "revoke a token for good",
        revoke_token,
        (argument("ID", "The token's id, as `token list` shows it."),),
    ),
    CliCommand("whoami", "show who you are to the server", whoami),
    CliCommand(
        "login-link",
        "create a new one-time link for the first admin, while there is none",
        login_link,
    ),
)
