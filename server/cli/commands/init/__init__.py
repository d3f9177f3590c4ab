"""`modelyard init`: a model folder made from an artefact."""
