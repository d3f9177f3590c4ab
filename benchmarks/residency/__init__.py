"""Hundreds of models in the memory of a few: `python -m benchmarks.residency.run`."""
