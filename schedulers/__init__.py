"""When, and in whose company, a request runs."""
