"""REST's endpoints beside inference, for the server's operators and its experiments."""
