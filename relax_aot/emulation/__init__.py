"""Runs images on emulated boards and on boards at a serial line."""
