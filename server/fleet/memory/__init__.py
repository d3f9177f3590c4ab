"""Memory of the devices: who holds how much, and who may have more."""
