"""The example repeat: a decoupled python model."""
