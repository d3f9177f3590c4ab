"""What experiments record: who met which arm and what came of it, kept for a while."""
