# SPDX-License-Identifier: Apache-2.0
"""Diagnosis: first differences, minimal reproducers, differences between builds."""
