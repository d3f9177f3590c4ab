"""Steps of ensembles that need no model's file: pictures and texts in, labels and boxes out."""
