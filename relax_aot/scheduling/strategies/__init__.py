"""Strategies: each matches contractions and writes their loops, for one kind of micro-kernel."""
