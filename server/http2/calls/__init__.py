"""gRPC on streams of HTTP/2: the head of a call, its messages, its status, and what answers it."""
