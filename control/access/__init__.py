"""Who may do what: roles, scopes, tokens and users, and the one function that decides."""
