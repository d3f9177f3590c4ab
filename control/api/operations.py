"""The table of the control API: every path and verb, and what it takes to be let in."""

from control.api.call import Access, Operation
from control.api.resources import (
    aliases,
    drift,
    events,
    experiments,
    imports,
    instances,
    jobs,
    loads,
    log,
    me,
    models,
    notifications,
    pipelines,
    problems,
    pushes,
    repositories,
    requests,
    residency,
    rollback,
    rollouts,
    routes,
    samples,
    series,
    server,
    steps,
    tokens,
    users,
    webhooks,
)

OPERATIONS: tuple[Operation, ...] = (
    *me.OPERATIONS,
    *users.OPERATIONS,
    *tokens.OPERATIONS,
    *repositories.OPERATIONS,
    *pushes.OPERATIONS,
    *models.OPERATIONS,
    *loads.OPERATIONS,
    *problems.OPERATIONS,
    *aliases.OPERATIONS,
    *routes.OPERATIONS,
    *imports.OPERATIONS,
    *jobs.OPERATIONS,
    *pipelines.OPERATIONS,
    *rollouts.OPERATIONS,
    *rollback.OPERATIONS,
    *experiments.OPERATIONS,
    *instances.OPERATIONS,
    *residency.OPERATIONS,
    *steps.OPERATIONS,
    *log.OPERATIONS,
    *samples.OPERATIONS,
    *requests.OPERATIONS,
    *series.OPERATIONS,
    *drift.OPERATIONS,
    *events.OPERATIONS,
    *webhooks.OPERATIONS,
    *notifications.OPERATIONS,
    *server.OPERATIONS,
)

ROUTES: dict[tuple[str, str], Access | None] = {
    (operation.verb, operation.path): operation.access for operation in OPERATIONS
}
"""Verb and path → what is asked of the principal; None is open to everybody."""
