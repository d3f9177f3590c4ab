"""Models small enough to build in seconds, and programs that call them with the stock client."""
