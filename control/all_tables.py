"""Every table there is: for whoever walks through all of them, so that none is missing."""

from control import rollout_tables as rollouts
from control.drift import tables as drift
from control.experiments import tables as experiments
from control.jobs import tables as jobs
from control.notifications import tables as notifications
from control.series import tables as series
from control.tables import Table

__all__ = ["Table", "drift", "experiments", "jobs", "notifications", "rollouts", "series"]
