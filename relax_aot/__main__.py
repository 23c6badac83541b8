"""`python -m relax_aot` is the same as `relax-aot`."""

from __future__ import annotations

from relax_aot.cli import main

if __name__ == "__main__":
    main()
