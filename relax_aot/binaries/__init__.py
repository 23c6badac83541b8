"""Analysis of linked images: sections, symbols, stack use, link maps."""
