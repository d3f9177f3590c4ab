"""git's hooks: what git runs, and who answers it on a socket."""
