"""Calls of tools in an answer's text, in each format that models write."""
