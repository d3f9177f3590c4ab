"""The example narrator: a python model that calls two models and a language model."""
