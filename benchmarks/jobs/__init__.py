"""Experiments on the offline jobs, slow. `python -m benchmarks jobs` converts and quantises
networks of four shapes, and puts what that does to accuracy, size and speed into one table."""
