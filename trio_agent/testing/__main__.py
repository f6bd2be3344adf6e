"""``python -m trio_agent.testing``; see `trio_agent.testing`."""

import sys

from ._command import main

if __name__ == "__main__":
    sys.exit(main())
