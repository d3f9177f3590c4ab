"""Drift over the API: who may begin to keep the values of strings, and who may change the rest."""

from control import loads, servers
from control.sql.database import SYSTEM
from support.admin import Api


def test_an_operator_changes_all_but_that_values_of_strings_are_kept(running: Api) -> None:
    with running.database.change(SYSTEM) as tx:
        servers.register(tx, "srv", "boot", "0.1", "http://127.0.0.1:1")
        loads.record(tx, "srv", [("digits", 1, "READY", "")])
    running.user("otto", "operator")
    otto = running.token("otto", "operate")

    def put(psi: float, names: bool, token: str = "") -> int:
        body = {"psi": psi, "names": names}
        if not token:
            return running.local("PUT", "/drift/digits", body).status
        return running.ask("PUT", "/drift/digits", body, token=token).status

    assert put(0.3, True, otto) == 403
    assert put(0.3, False, otto) == 200
    assert put(0.3, True) == 200
    assert put(0.4, True, otto) == 200
    assert running.local("GET", "/drift/digits").json["watch"]["psi"] == 0.4
    assert put(0.4, False, otto) == 200
    assert put(0.4, True, otto) == 403
