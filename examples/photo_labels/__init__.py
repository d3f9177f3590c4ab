"""An ensemble that names what a photograph shows."""
