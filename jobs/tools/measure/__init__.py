"""What is measured: differences between two networks, their latency, and the machine's CPU."""
