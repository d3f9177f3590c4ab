"""An embedding model whose batches are ragged."""
