"""Steps that a push declares for a version: jobs in a row, then a rollout or an alias."""
