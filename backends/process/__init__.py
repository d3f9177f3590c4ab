"""Instances in processes of their own: spawned, fed through shared memory, restarted when dead.

The walk of a batch: `instance` → `process` → (`layout`, `region`, `channel`) → `worker` in the
child, and the same way back. `watch` notices deaths, `output` carries what user code prints.
"""
