"""The sides of ``bench.tool_validation``, each run in its own interpreter."""
