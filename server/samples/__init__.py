"""Sampled requests: what some of a model's requests brought and got, kept for a short while."""
