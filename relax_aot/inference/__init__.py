"""What is inferred while a function is built: types, sizes, value ranges, conditions."""
