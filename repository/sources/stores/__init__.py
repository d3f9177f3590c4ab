"""Where the bytes of a source lie: web servers, buckets, hubs; one store each, opened by URL."""
