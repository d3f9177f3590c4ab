"""The control process: what it is composed of, and what only a process of the server can hand
in."""
