"""The bytes of HTTP/2: frames, and header blocks in HPACK."""
