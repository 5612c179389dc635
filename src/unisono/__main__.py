"""`python -m unisono` is the `unisono` command."""

from __future__ import annotations

from unisono.cli import main

if __name__ == "__main__":
    main()
