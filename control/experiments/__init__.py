"""A/B experiments over the arms of a route: who saw which arm, and what came of it."""
