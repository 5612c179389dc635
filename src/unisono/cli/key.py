"""`unisono key`: makes keyrings, and changes their keys without a stop."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unisono.cli.app import app

if TYPE_CHECKING:
    from unisono.sealing.keys import Keyring

key = typer.Typer(
    help="The keys of sealed groups, and of their members. To change a group's key, install the"
    " new one in every member's keyring, use it in every keyring, remove the old one from every"
    " keyring. Members read their file again within a second.",
    no_args_is_help=True,
)
app.add_typer(key, name="key")

File = Annotated[Path, typer.Argument(metavar="FILE", help="The keyring.")]
Digits = Annotated[
    str,
    typer.Argument(
        metavar="KEY", help="32 hexadecimal digits, or - to read them from standard input."
    ),
]


@key.command()
def new(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="The keyring; without it, print a key.")
    ] = None,
) -> None:
    """Make a key: a keyring with it, or on standard output."""
    from unisono.net.key_files import save_keyring
    from unisono.sealing.keys import KEY_BYTES, Keyring

    made = os.urandom(KEY_BYTES)
    if file is None:
        print(made.hex())
    else:
        save_keyring(file, Keyring((made,)), new=True)


@key.command()
def identity(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The new file.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="The member's name.")],
) -> None:
    """Make the identity of a member. Its line for every member's list of allowed= is printed."""
    from unisono.config import NAME
    from unisono.errors import Misuse
    from unisono.net.key_files import save_identity
    from unisono.sealing.identity import Identity, named_key_text
    from unisono.sealing.records import IDENTITY_BYTES

    if not NAME.fullmatch(name):
        raise Misuse(f"name {name!r}: use 1 to 64 letters, digits or ._@+-")
    made = Identity(name, os.urandom(IDENTITY_BYTES))
    public = made.public()
    save_identity(file, made)
    print(named_key_text(name, public), end="")


@key.command()
def install(file: File, digits: Digits) -> None:
    """Accept packets that are sealed with this key too."""
    _change(file, lambda ring, key: ring.installed(key), digits)


@key.command()
def use(file: File, digits: Digits) -> None:
    """Seal packets with this key, which every member has installed."""
    _change(file, lambda ring, key: ring.using(key), digits)


@key.command()
def remove(file: File, digits: Digits) -> None:
    """Accept packets that are sealed with this key no longer."""
    _change(file, lambda ring, key: ring.without(key), digits)


def _change(file: Path, change: Callable[[Keyring, bytes], Keyring], digits: str) -> None:
    from unisono.net.key_files import load_keyring, save_keyring
    from unisono.sealing.keys import key_of

    if digits == "-":  # Others on the machine may see command lines.
        digits = sys.stdin.readline().strip()
    save_keyring(file, change(load_keyring(file), key_of(digits)))
