"""Desired state: tables, access, pushes, versions, aliases, audit, and what gateways are told."""
