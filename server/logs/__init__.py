"""The server's log and its access log: where lines go and how they look."""
