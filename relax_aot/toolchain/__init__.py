# SPDX-License-Identifier: Apache-2.0
"""Compilers, linkers and how to install them; builds of images for boards."""
