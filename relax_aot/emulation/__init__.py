# SPDX-License-Identifier: Apache-2.0
"""Runs images on emulated boards and on boards at a serial line."""
