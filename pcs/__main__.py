"""``python -m pcs``: the same as the ``pcs`` command."""

import sys

from pcs.cli import main

if __name__ == "__main__":
    sys.exit(main())
