"""Checks of versions before they load, in processes that may die of them."""
