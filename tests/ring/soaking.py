"""The mark of what runs only under `make soak`, and only when this protocol is soaked."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

T = TypeVar("T", bound=Callable[..., Any])
ASKED = os.environ.get("UNISONO_PROTOCOL") or "ring"


def soak(test: T) -> T:
    other = pytest.mark.skipif(ASKED != "ring", reason=f"{ASKED} is soaked")
    return pytest.mark.soak(other(test))
