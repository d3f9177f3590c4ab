"""What the control process asks of the models that are loaded, and has done with them."""

from control.gateways.queries import (
    CrashQuery,
    LoadedQuery,
    QueryAnswer,
    ResidencyQuery,
    RunningQuery,
)
from server.desired.instances import crashes, loaded, running
from server.fleet.fleet import Fleet


def answer_of_fleet(
    query: RunningQuery | CrashQuery | LoadedQuery | ResidencyQuery, fleet: Fleet
) -> QueryAnswer:
    match query:
        case RunningQuery():
            return running(fleet.served(), fleet.memory, fleet.limiter, query.model)
        case CrashQuery():
            return crashes(fleet.served())
        case LoadedQuery():
            return loaded(fleet.served(), query.model)
        case ResidencyQuery():
            return fleet.residency.answer(query)
