"""Experiments on the offline jobs, slow; each is one command."""
