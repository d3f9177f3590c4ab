"""Four versions of a model, pushed one after the other while clients are sending."""
