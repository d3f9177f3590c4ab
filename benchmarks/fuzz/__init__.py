"""Coverage-guided fuzzing of everything that reads bytes of others: `python -m benchmarks.fuzz`.

Each target (`targets/`) drives our real code in one process; libFuzzer (through atheris) makes the
inputs from what earlier ones reached. A crash, a hang, growth, or an answer that calls itself a
bug ends a run with the input in a file.
"""
