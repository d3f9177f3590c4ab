"""Real faults in real processes: `python -m benchmarks.faults`.

A cell of the table is a component, what it is doing at that moment, and a kind of fault. Each is
injected into a server under verified load; the row says what clients saw: answers that were lost,
wrong or never came, acknowledged changes that were gone, and how long until all was well again.
"""
