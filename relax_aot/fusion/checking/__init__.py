# SPDX-License-Identifier: Apache-2.0
"""An independent second opinion on fusion; see fusion/check.py."""
