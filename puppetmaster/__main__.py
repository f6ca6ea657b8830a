"""``python -m puppetmaster``: the same as the ``puppetmaster`` command."""

import sys

from puppetmaster.cli import main

if __name__ == "__main__":
    sys.exit(main())
