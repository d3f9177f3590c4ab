"""A checkpoint's weights: what it holds, what it must hold, and how they are read."""
