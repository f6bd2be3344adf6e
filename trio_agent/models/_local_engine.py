"""The process in which a local model runs: ``python -m trio_agent.models._local_engine JSON``.

Prints the address that it serves at, and ends when its input ends, which is also when its parent dies.
"""

import json
import sys

__all__ = ["main"]


def main() -> None:
    """Serve until the input ends."""
    import xllamacpp  # type: ignore[import-untyped, import-not-found, unused-ignore]  # an extra

    wanted = json.loads(sys.argv[1])
    parameters = xllamacpp.CommonParams()
    parameters.model.path = wanted["path"]
    parameters.n_ctx = wanted["context"] * wanted["parallel"]
    parameters.n_parallel = wanted["parallel"]
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.api_keys = [wanted["key"]]  # other users of this machine can reach the port, too
    parameters.warmup = False
    parameters.ui = False
    server = xllamacpp.Server(parameters)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
