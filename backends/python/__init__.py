"""The backend `python`: models written against `triton_python_backend_utils`."""
