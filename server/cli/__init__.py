"""The commands `modelyard` and `tritonserver`."""
