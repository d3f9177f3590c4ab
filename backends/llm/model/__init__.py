"""The networks: decoders and encoders on the operations of a device."""
