"""Who is measured: one file each, with a function that starts it and says where it listens."""
