"""An independent second opinion on fusion; see check.py beside this folder."""
