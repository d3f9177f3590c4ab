"""Wanted state (SQL): routes, rollouts, access, audit. Empty until the control process lands."""
