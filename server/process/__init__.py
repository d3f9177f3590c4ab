"""The gateway as a process: its start, its signals, its end, and the machine that it runs on."""
