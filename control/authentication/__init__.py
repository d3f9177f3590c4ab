"""Who makes a request: credentials, sessions of sockets and browsers, and the client's address."""
