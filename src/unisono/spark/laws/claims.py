"""What is claimed of protocols: the laws by which their runs are judged on Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from unisono.errors import Misuse
from unisono.laws import LAWS

Claims: TypeAlias = Mapping[str, Sequence[str]]
"""By protocol, the laws that it claims. A protocol that is not named claims none."""


def check_claims(claimed: Claims) -> None:
    """`Misuse` when a law is claimed that is none."""
    unknown = sorted({law for laws in claimed.values() for law in laws} - LAWS.keys())
    if unknown:
        raise Misuse(f"no law {', '.join(unknown)}; there are {', '.join(LAWS)}")
