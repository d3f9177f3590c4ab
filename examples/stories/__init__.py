"""A small language model that tells stories, trained on text its own grammar makes up."""
