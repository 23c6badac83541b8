# SPDX-License-Identifier: Apache-2.0
"""What a program is: sizes, types, graph level, loop level."""
