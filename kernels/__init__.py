"""Kernels: how bytes are decoded and moved. One kernel, or one decoder's few, per file.

Each module opens with its contract, shows a plain reference in the order of the format's specification and ends with a
`Kernel` value. Modules here import numpy, numba and `zarrgpu._cuda`, nothing else.
"""
