"""Evaluates modules and kernels in NumPy."""
