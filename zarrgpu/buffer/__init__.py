"""Buffers for zarr: `cpu` in host memory, `gpu` in device memory, each with a ``buffer_prototype``."""
