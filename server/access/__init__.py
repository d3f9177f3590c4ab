"""Who may ask for what: the tokens of clients, what each path and method asks, the decision."""
