"""The example gru_text: a GRU writes text, and the server keeps its state."""
