"""Continuous batching of language models: schedule → run → commit, over a paged key-value cache."""
