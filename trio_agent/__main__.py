"""``python -m trio_agent`` is the ``trio-agent`` command."""

import sys

from trio_agent.cli import main

if __name__ == "__main__":
    sys.exit(main())
