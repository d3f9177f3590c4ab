"""Reproducible comparisons: this server, its peers and the bare limits, measured in one run."""
