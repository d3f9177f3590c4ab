"""Drift, on the gateway's side: what models get and answer, counted in bounded histograms."""
