"""Hosts git repositories that models are pushed to: bare folders, system git, rules for a push."""
