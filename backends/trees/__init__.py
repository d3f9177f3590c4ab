"""Runtimes for trained trees, read from their own formats without unpickling: XGBoost, LightGBM."""
