"""The add/sub model of Triton's quick start."""
