"""This tree against another revision: `python -m benchmarks against REV` (or `--against REV`).

The other revision is checked out into a worktree with an environment of its own; both servers run
at once and are asked in turns, so that a noisy minute hits both. A server differs from one start to
the next by more than a small change does, so both are started several times. Of the other revision
nothing is used but its command line and its wires.
"""
