"""Other engines for `benchmarks.llm`, each a program that runs in an environment of its own."""
