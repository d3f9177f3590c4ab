"""Ensembles: a request goes through a graph of steps, each a call of a model."""
