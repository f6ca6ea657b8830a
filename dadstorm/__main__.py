"""``python -m dadstorm`` is the ``dadstorm`` command."""

import sys

from dadstorm.cli import main

if __name__ == "__main__":
    sys.exit(main())
