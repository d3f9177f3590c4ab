"""Rolling a model back: where to, and doing it."""

from typing import Annotated, Any
from urllib.parse import quote

from control.access.scopes import Action
from control.api.body_fields import ApiBody, Positive, Text, meaning
from control.api.call import Access, AuthorizedCall, EndpointResult, Operation
from control.rollouts.plan_keys import parse_plan
from control.rollouts.rollback import AT_ONCE, RollbackView, roll_back, rollback_of
from control.rollouts.views import RolloutView

_PATH = "/models/{model}/rollback"
LONGEST_WHY = 500


class NewRollback(ApiBody, frozen=True):
    """Without `to` the last healthy version; without `plan` all traffic at once."""

    to: Annotated[Positive | None, meaning("The version to go back to.", examples=[3])] = None
    plan: Annotated[
        dict[str, Any] | None,
        meaning("Steps, holds and guardrails.", examples=[{"steps": "10, 50", "hold": "1m"}]),
    ] = None
    why: Annotated[Text | None, meaning("For events and the audit.", examples=["too slow"])] = None


def show(call: AuthorizedCall) -> EndpointResult:
    with call.services.database.reading() as session:
        return EndpointResult(rollback_of(session, call.path["model"]))


def run(call: AuthorizedCall) -> EndpointResult:
    given = call.given(NewRollback)
    plan = AT_ONCE if given.plan is None else parse_plan({"mirror": 0, **given.plan})
    why = (given.why or "")[:LONGEST_WHY]
    with call.services.database.change(call.actor) as tx:
        view = roll_back(tx, call.path["model"], given.to, plan, why)
    return EndpointResult(view, 201, view.revision, f"/api/v1/rollouts/{quote(view.id)}")


OPERATIONS = (
    Operation(
        verb="GET",
        path=_PATH,
        access=Access(Action.READ, "model"),
        tag="Rollouts",
        summary="Where a rollback of a model may lead, and which versions were rolled back",
        run=show,
        gives=RollbackView,
    ),
    Operation(
        verb="POST",
        path=_PATH,
        access=Access(Action.OPERATE, "model"),
        tag="Rollouts",
        summary="Roll a model back to an earlier version; loads it first where it is not loaded",
        run=run,
        takes=NewRollback,
        gives=RolloutView,
        status=201,
    ),
)
