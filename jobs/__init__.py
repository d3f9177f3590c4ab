"""Offline jobs: Celery tasks, their processes, tool environments and tools."""
