"""The Python environments that tools run in: chosen by the job, locked in the tree, built once."""
