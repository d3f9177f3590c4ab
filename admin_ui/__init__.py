"""The web console. Empty until it lands."""
