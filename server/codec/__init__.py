"""Between the wires' bodies and `InferRequest` or `InferResponse`: JSON, protobuf, raw bytes."""
