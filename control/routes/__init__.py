"""Routes and aliases: which version answers to which public name."""
