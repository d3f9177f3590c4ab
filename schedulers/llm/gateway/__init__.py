"""The gateway's side of a language model: admits requests, hands them to engines, answers."""
