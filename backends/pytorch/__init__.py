"""The backend `pytorch`: TorchScript and exported programs."""
