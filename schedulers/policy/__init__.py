"""Pure policies of the schedulers for tensors: who waits, who leaves together, who gets a core."""
