"""What the tests stand on: servers, clients, yards, stand-ins."""
