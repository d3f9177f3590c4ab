"""Language models on torch: a checkpoint's config and weights, one decoder, sampling and text."""
