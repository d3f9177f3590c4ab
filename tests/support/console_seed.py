"""A server as it looks after a bad night, for pictures and for axe: `seed(yard)` fills it.

Two models by git, one of them broken in its newest push, one in a model folder, a refused push,
aliases, users of each role, tokens.
"""

import json
from dataclasses import dataclass
from http.client import HTTPConnection

from support.console_past import begun_pipeline, past_experiment, past_job, past_rollout
from support.server import identity_config
from support.yard import Yard, write_identity

PASSWORD = "correct horse battery"
BROKEN = 'backend: "onnxruntime"\nmax_batch_size: 8\n'
ON_DEMAND = 'parameters { key: "load_on_demand" value { string_value: "true" } }\n'
PEOPLE = {"iris": "admin", "otto": "operator", "vera": "viewer"}


@dataclass(frozen=True)
class Seeded:
    """Ids that paths of screens need."""

    push: str
    refused: str
    token: str
    rollout: str
    problem: str
    past_rollout: str
    job: str
    reported: tuple[str, str]
    step: str


@dataclass(frozen=True)
class Night:
    """A filled server."""

    yard: Yard
    seeded: Seeded

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.yard.admin_port}"


def seed(yard: Yard) -> Seeded:
    folder = yard.repository("vision")
    write_identity(folder, "digits", 1, 2)
    write_identity(folder, "faces", 1)
    yard.commit(folder, "Digits and faces")
    yard.push(folder)
    yard.wait_versions("digits", 2)
    write_identity(folder, "digits", 3, config="# the third one\nmax_queue_size: 1\n")
    yard.commit(folder, "A \x1b[31mred\x1b[0m <b>mistake</b>")
    yard.push(folder, ok=False)
    write_identity(folder, "digits", 3)
    yard.commit(folder, "Digits once more, <script>alert(1)</script>")
    yard.push(folder)
    yard.wait_versions("digits", 3)
    for name, role in PEOPLE.items():
        yard.api("POST", "/users", {"name": name, "role": role, "password": PASSWORD})
    wanted = {"name": "laptop", "user": "iris", "scopes": ["push:vision:*", "infer:*"]}
    token = yard.api("POST", "/tokens", wanted)[1]["token"]["id"]
    yard.api("PUT", "/models/digits/aliases/champion", {"version": 2})
    pushes = yard.api("GET", "/pushes")[1]["items"]
    refused = next(one["id"] for one in pushes if one["state"] == "refused")
    served = next(one["id"] for one in pushes if one["state"] != "refused")
    _sample(yard)
    _notify(yard)
    rollout, past = _roll_out(yard)
    job, reported = _job(yard), (past_job(yard, _job(yard)), past_job(yard, _job(yard, floor=0.9)))
    step = begun_pipeline(yard)
    return Seeded(served, refused, token, rollout, _problem(yard), past, job, reported, step)


def _job(yard: Yard, **fields: float) -> str:
    """The id of one that waits for a worker."""
    terms = {"spec": {"type": "quantise", "model": "digits", **fields}, "queue": "nobody"}
    status, made = yard.api("POST", "/jobs", terms)
    assert status == 202, made
    return str(made["id"])


def _problem(yard: Yard) -> str:
    """The key of one that lasts: of the broken folder, or of a push."""

    def lasting() -> list[str]:
        rows = yard.api("GET", "/problems")[1]["items"]
        return [str(one["key"]) for one in rows if one["kind"] in ("load", "push")]

    yard.wait_for(lambda: bool(lasting()), "a problem of a load or a push")
    return lasting()[0]


def _notify(yard: Yard) -> None:
    """Two webhooks whose names nobody can resolve, messages to them, and a mute."""
    for name, terms in {
        "on-call": {"kinds": [], "models": []},
        "team-chat": {"format": "slack", "kinds": ["rollout.rolled_back"], "models": ["digits"]},
    }.items():
        url = f"https://{name}.invalid/services/T0/B0"
        status, _ = yard.api("POST", "/webhooks", {"name": name, "url": url, **terms})
        assert status == 201
    muted = {"model": "captions", "for_s": 3600, "note": "Ask Otto first."}
    assert yard.api("POST", "/mutes", muted)[0] == 201


def _sample(yard: Yard) -> None:
    """Sampling of one model, and two requests that were kept; one without an id."""
    terms = {"minutes": 60}  # refused until the control process has heard of the model
    yard.wait_for(lambda: yard.api("PUT", "/sampling/digits", terms)[0] == 200, "sampling")
    values = [float(one) for one in range(12)]
    tensor = {"name": "INPUT0", "shape": [1, 12], "datatype": "FP32", "data": values}
    for identity in ("order-17", ""):
        connection = HTTPConnection("127.0.0.1", yard.server.http_port, timeout=60)
        body = json.dumps({"id": identity, "inputs": [tensor]})
        connection.request("POST", "/v2/models/digits/infer", body)
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        answer.read()
        connection.close()


def _roll_out(yard: Yard) -> tuple[str, str]:
    """Two routes, an experiment of one, and of the other a rollout that waits in its first step and
    one before it that was rolled back; the rollouts' ids."""
    first, third = ({"model": "digits", "version": number} for number in (1, 3))
    stable = {"name": "stable", **first, "weight": 100}
    yard.api("PUT", "/routes/digits", {"arms": [stable], "unit": "header:x-user"})
    arms = [{**stable, "weight": 75}, {"name": "next", **third, "weight": 25}]
    rules = [{"header": "x-user", "value": "beta", "prefix": True, "arm": "next"}]
    yard.api("PUT", "/routes/shop", {"arms": arms, "unit": "key", "matches": rules})
    bought = {"name": "bought", "kind": "proportion", "direction": "up", "minimal_effect": 0.01}
    for name in ("colour", "draft"):
        yard.api("POST", "/experiments", {"name": name, "route": "shop", "metrics": [bought]})
    past_experiment(yard, "colour")
    past = past_rollout(yard)
    plan = {"mirror": 0, "steps": "10, 50", "hold": "1h"}
    begun = yard.api("POST", "/rollouts", {"name": "digits", "candidate": 3, "plan": plan})
    return str(begun[1]["id"]), past


def break_a_folder(yard: Yard) -> None:
    """A model folder of the server's own that cannot be loaded, one that can, and one that its
    first request loads."""
    good = yard.folder / "models" / "echo"
    (good / "1").mkdir(parents=True)
    (good / "config.pbtxt").write_text(identity_config("echo"))
    rare = yard.folder / "models" / "archive"
    (rare / "1").mkdir(parents=True)
    (rare / "config.pbtxt").write_text(identity_config("archive") + ON_DEMAND)
    bad = yard.folder / "models" / "captions"
    (bad / "1").mkdir(parents=True)
    (bad / "1" / "model.onnx").write_bytes(b"not an onnx file")
    (bad / "config.pbtxt").write_text('name: "captions"\n' + BROKEN)


def paths(seeded: Seeded) -> dict[str, str]:
    """Every screen by a name."""
    return {
        "overview": "/",
        "problem": f"/problems/{seeded.problem}",
        "models": "/models",
        "model": "/models/digits",
        "model-of-a-folder": "/models/captions",
        "drift": "/models/digits/drift",
        "alias": "/models/digits/aliases/champion",
        "version": "/models/digits/versions/3",
        "playground": "/playground",
        "try": "/playground/digits",
        "routes": "/routes",
        "route": "/routes/shop",
        "rollouts": "/rollouts",
        "rollout": f"/rollouts/{seeded.rollout}",
        "rollout-rolled-back": f"/rollouts/{seeded.past_rollout}",
        "experiments": "/experiments",
        "experiment": "/experiments/colour",
        "experiment-draft": "/experiments/draft",
        "pushes": "/pushes",
        "push": f"/pushes/{seeded.push}",
        "push-refused": f"/pushes/{seeded.refused}",
        "repositories": "/repositories",
        "repository": "/repositories/vision",
        "servers": "/servers",
        "requests": "/requests",
        "jobs": "/jobs",
        "imports": "/jobs/imports",
        "job-new": "/jobs/new",
        "job-compare": "/jobs/compare",
        "job-compared": "/jobs/compare?first={}&second={}".format(*seeded.reported),
        "job": f"/jobs/{seeded.job}",
        "job-report": f"/jobs/{seeded.reported[0]}",
        "job-of-a-pipeline": f"/jobs/{seeded.step}",
        "search-for-jobs": "/search?q=quantise",
        "notifications": "/notifications",
        "webhook": "/notifications/on-call",
        "access": "/access",
        "user": "/access/users/otto",
        "token": f"/access/tokens/{seeded.token}",
        "audit": "/audit",
        "settings": "/settings",
        "search": "/search?q=digits",
        "compare": "/compare/digits?a=version:2&b=version:3",
        "version-of-a-folder": "/models/echo/versions/1",
        "help": "/help",
        "help-page": "/help/console",
        "not-found": "/nowhere",
    }


BEFORE = {"login": "/login", "welcome": "/welcome"}
