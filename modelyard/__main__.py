"""`python -m modelyard`: the command `modelyard`."""

import sys

from modelyard.entry import main

if __name__ == "__main__":
    sys.exit(main())
