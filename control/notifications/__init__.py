"""Notifications: which events are sent to whom, the outbox they wait in, and webhooks."""
