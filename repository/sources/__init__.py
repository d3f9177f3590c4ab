"""Fetches a model, or one version of it, from a URL into a staging folder."""
