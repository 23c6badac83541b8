"""Compilers, linkers and how to install them; builds of images for boards."""
