"""Metrics for Prometheus, and the figures only they need."""
