"""Passes over the loops of kernels, before and after the strategies. Each file has `run`."""
