"""Diagnosis: first differences, minimal reproducers, differences between builds."""
