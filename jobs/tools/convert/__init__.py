"""Conversions between formats, each compared with its source at several shapes."""
