"""A whole server under mixed, verified traffic for an hour: `python -m benchmarks.soak`.

While requests come over every protocol, clients crash, cancel and read slowly, versions are pushed,
rolled out, copied into folders and taken away. Every minute goes to a file of JSON lines, from
which the verdict and the plot are drawn: what became of each request, and whether memory,
descriptors, threads and shared memory stay flat.
"""
