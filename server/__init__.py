"""Front front ends, data plane, fleet, composition roots and the command line."""

VERSION = "0.1.0"
