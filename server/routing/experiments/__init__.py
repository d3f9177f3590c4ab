"""What routes note for experiments: who met which arm, and what came of it."""
