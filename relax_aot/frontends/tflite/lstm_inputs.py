# SPDX-License-Identifier: Apache-2.0
"""The inputs of UNIDIRECTIONAL_SEQUENCE_LSTM by number."""

from __future__ import annotations

INPUT, FORGET, CELL, OUTPUT = range(4)
"""Gates, in the order of their inputs."""
WEIGHTS, RECURRENT, PEEPHOLES, BIASES = 1, 5, 9, 12
"""Where the parts of the gates begin among the inputs."""
PROJECTION, PROJECTION_BIAS, STATE, CELL_STATE, NORMS = 16, 17, 18, 19, 20
SEEN = {INPUT: 0, FORGET: 1, OUTPUT: 2}
"""The gates that may have peepholes."""
