# SPDX-License-Identifier: Apache-2.0
"""What is inferred while a function is built: types, sizes, value ranges, conditions."""
