"""Business logic scripting: python models that call other models, control them and have metrics.

`service` connects workers; each life of a worker has a `connection`, read on the event loop, which
makes an `open_call` of each call. `schedulers.calls` carries them out.
"""
