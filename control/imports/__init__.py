"""Imports of models from URLs: fetched by a process of their own, then checked and deployed."""
