"""Numbers and options as they are written on a command line."""

from __future__ import annotations

from collections.abc import Iterable

from unisono.errors import Misuse


def whole(text: str, what: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise Misuse(f"{what} {text!r} is not a whole number") from None


def options_of(texts: Iterable[str]) -> dict[str, int]:
    """Of a protocol: `K=V`, each once or the last one counts."""
    return dict(map(_option, texts))


def _option(text: str) -> tuple[str, int]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise Misuse(f"--option {text!r}: write it as name=number")
    return name, whole(value, f"--option {name}")
