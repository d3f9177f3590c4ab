"""In how many bits weights, keys and values are held; no torch."""

from typing import Literal

Precision = Literal["float32", "bfloat16", "int8", "int4"]
"""Weights. int8 has a scale per output channel and quantises its input per row where the device
can; int4 has a scale per GROUP inputs."""
CacheType = Literal["auto", "int8"]
"""Keys and values: in the compute type, or int8 with a scale per token and head."""
GROUP = 32
"""Inputs that share an int4 scale."""
