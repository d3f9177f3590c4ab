"""What pruning and distillation share: the recipe, the training loop, export and measuring."""
