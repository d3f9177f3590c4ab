"""What is fuzzed, a file each; its `TARGET` says how."""
