"""Benchmarks: one file per question, each a ratio in one run against something else on the same machine."""
