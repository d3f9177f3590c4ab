"""What a request would get, and why: for people who ask before anybody sends one. Pure."""

from collections.abc import Mapping

from control.desired import DesiredRoute
from control.routes.buckets import BUCKETS, bucket
from control.routes.spec import HEADER
from control.views import Explanation
from server.routing.pick import RouteKey, pick
from server.routing.table import CompiledRoute, compile_route


def explain(
    desired: DesiredRoute,
    aliases: Mapping[str, Mapping[str, int]],
    unit: str,
    labels: Mapping[str, str],
) -> Explanation:
    """See `control.routes.explanation.ExplainRoute`."""
    return explain_compiled(compile_route(desired, aliases), unit, labels)


def explain_compiled(route: CompiledRoute, unit: str, labels: Mapping[str, str]) -> Explanation:
    """`labels`: headers by name in lower case; the one that is the route's unit counts as such."""
    if route.unit_source == HEADER:
        unit = unit or labels.get(route.unit_name, "")
    target = pick(route, RouteKey(unit, labels))
    found = bucket(route.salt, unit) if unit and target.sticky else None
    drawn = found is None and route.only is None and not _rule(route, labels)
    if drawn:
        return Explanation(None, None, None, None, None, f"no unit: {_shares(route)}")
    reason = _reason(route, labels, found, target.arm)
    return Explanation(
        target.arm, target.model, target.version or None, found, target.label, reason
    )


def _reason(route: CompiledRoute, labels: Mapping[str, str], found: int | None, arm: str) -> str:
    if route.only is not None:
        return f"the kill switch sends everything to '{arm}'"
    if found is None:
        return f"the rule on the header '{_rule(route, labels)}' leads to '{arm}'"
    return f"its bucket is {found} of {BUCKETS}, and '{arm}' owns {_share(route, arm)} of them"


def _rule(route: CompiledRoute, labels: Mapping[str, str]) -> str:
    """The header of the rule that fits, "" for none."""
    for rule in route.rules:
        value = labels.get(rule.header, "")
        if value == rule.value or (rule.prefix and value.startswith(rule.value)):
            return rule.header
    return ""


def _shares(route: CompiledRoute) -> str:
    shares = ", ".join(f"{_share(route, one.arm)} to '{one.arm}'" for one in route.loose)
    return f"each request is drawn anew, {shares}"


def _share(route: CompiledRoute, arm: str) -> str:
    number = [one.arm for one in route.loose].index(arm)
    return f"{route.owners.count(number) * 100 / BUCKETS:g} %"
