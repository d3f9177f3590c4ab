"""What a rollout can tell of its candidate, from its plan and the traffic that its name had."""

from datetime import datetime

from sqlalchemy.orm import Session

from control.rollouts.moves import goes_straight
from control.rollouts.outlook import RECENT_S, RecentRequests, RolloutOutlook, outlook
from control.rollouts.queries import find
from control.rollouts.signals import watched_signals
from control.rollouts.state import state_of
from control.rollouts.views import view_of
from control.series.cache import SeriesCache
from control.series.points import WINDOW_S
from control.series.reading import range_of
from control.series.selection import SERVED, SeriesSelection


def outlook_of(
    session: Session, series: SeriesCache, rollout_id: str, now: datetime
) -> RolloutOutlook:
    """Raises NotFound."""
    row = find(session, rollout_id)
    state = state_of(row.plan, row.state)
    recent = _recent(session, series, row.name, now)
    straight = (state.shortcut or "the plan's mode is immediate") if goes_straight(state) else ""
    return outlook(state.plan, recent, watched_signals(session, view_of(row)), straight)


def _recent(session: Session, series: SeriesCache, name: str, now: datetime) -> RecentRequests:
    """Of the arms of the name's route, and before the first request to one of them, when it had
    none perhaps, of the model; over the time in which there was a server. What clients got wrong or
    cancelled does not count, as in a rollout."""
    at = int(now.timestamp())
    within = range_of(at - RECENT_S, at, at, RECENT_S // WINDOW_S)
    arms = series.read(session, within, SeriesSelection("arm", name))
    models = series.read(session, within, SeriesSelection("model", name))
    served = arms.pop(SERVED, {}).keys() | models.pop(SERVED, {}).keys()
    routed = [(start, one) for line in arms.values() for start, one in line.items()]
    since = min((start for start, one in routed if one.succeeded or one.failures), default=at)
    found = [one for _, one in routed]
    found += [one for line in models.values() for start, one in line.items() if start < since]
    seconds = max(1, len(served)) * within.step_s
    errors = sum(max(0, one.errors - one.client_errors) for one in found)
    return RecentRequests(seconds, sum(one.succeeded for one in found) + errors, errors)
