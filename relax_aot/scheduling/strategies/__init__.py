# SPDX-License-Identifier: Apache-2.0
"""Strategies: each matches contractions and writes their loops, for one kind of micro-kernel."""
