"""The sequence batcher: requests of a sequence run in order, on the instance that has its state."""
