"""The REST listener: HTTP/1.1 connections, the infer verb beside ASGI, and every other path."""
