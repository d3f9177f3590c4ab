"""The composition root of a worker of offline jobs."""
