"""The gRPC listener: Triton's service and health on `server.http2`, method by method."""
