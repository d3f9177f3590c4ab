"""The example running_sum: a sequence model with implicit state."""
