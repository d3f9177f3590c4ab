"""The commands that ask a running server: `modelyard user list` and its like, one file per noun."""
