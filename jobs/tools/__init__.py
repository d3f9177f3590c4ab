"""The work of each job type, run in a process and a tool environment of its own.

Nothing here knows the database, Celery or the server: a tool reads its `Task`, writes files into
the task's folders, and reports through `Work`.
"""
