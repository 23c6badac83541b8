"""An independent second opinion on fusion; see fusion/check.py."""
