"""Which versions are loaded while requests come: loaded on demand, evicted when memory is short."""
