"""Kernels and read paths by ``pytest benchmarks --benchmark-enable``, the gate by ``python -m benchmarks``.

Without ``--benchmark-enable`` each runs once, on little data, as a test.
"""
