"""HTTP/1.1: connections with bounds on what a client may send and how long it may take."""
