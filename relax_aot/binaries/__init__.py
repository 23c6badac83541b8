# SPDX-License-Identifier: Apache-2.0
"""Analysis of linked images: sections, symbols, stack use, link maps."""
