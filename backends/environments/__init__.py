"""Python environments of models: named by a config or made from requirements, kept and lent."""
