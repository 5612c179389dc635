"""Keyrings: a mistake is one line that says what to do, and never shows a key."""

from __future__ import annotations

import asyncio
import io
import os
import sys
from pathlib import Path

import pytest

from tests import waiting
from tests.sealing.stage import KEY, OTHER_KEY, Sealed
from unisono import cli
from unisono.errors import Misuse
from unisono.net import key_files
from unisono.net.key_files import KeyFileWatch, keyring_of, load_keyring, save_keyring
from unisono.sealing import keys
from unisono.sealing.keys import KEYS_COUNT_MAX, Keyring, key_of, keyring_text, read_keyring

HEX = KEY.hex()


def test_a_keyring_is_read_as_it_is_written() -> None:
    keyring = Keyring((KEY, OTHER_KEY))
    assert read_keyring(keyring_text(keyring), "k") == keyring
    assert read_keyring(f"# ours\n\n {HEX.upper()}  # in use\n", "k") == Keyring((KEY,))


def test_a_key_is_installed_used_and_removed() -> None:
    keyring = Keyring((KEY,)).installed(OTHER_KEY).installed(OTHER_KEY)
    assert keyring.keys == (KEY, OTHER_KEY)
    assert keyring.using(OTHER_KEY).without(KEY).keys == (OTHER_KEY,)
    for wrong in (lambda: keyring.without(KEY), lambda: Keyring((KEY,)).using(OTHER_KEY)):
        with pytest.raises(Misuse, match="at every member first"):
            wrong()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "has 0 keys: write 1 to"),
        (HEX[:-1], "not 31 characters"),
        ("g" * 32, "hexadecimal digits"),
        ("\n".join(f"{n:032x}" for n in range(KEYS_COUNT_MAX + 1)), "write 1 to"),
    ],
)
def test_a_bad_keyring_is_told_without_its_keys(text: str, told: str, tmp_path: Path) -> None:
    file = tmp_path / "ring"
    file.write_text(text)
    file.chmod(0o600)
    with pytest.raises(Misuse, match=told) as error:
        keyring_of(str(file))
    assert not text or text not in str(error.value)


def test_a_bad_key_is_told_without_itself() -> None:
    with pytest.raises(Misuse, match="not 31 characters") as error:
        keyring_of(HEX[:-1])
    assert HEX[:-1] not in str(error.value)
    assert keyring_of(HEX) == Keyring((key_of(HEX),))


def test_a_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "ring"
    save_keyring(file, Keyring((KEY,)), new=True)
    assert file.stat().st_mode & 0o777 == 0o600
    assert load_keyring(file) == Keyring((KEY,))
    with pytest.raises(Misuse, match="exists"):
        save_keyring(file, Keyring((KEY,)), new=True)
    file.chmod(0o644)
    with pytest.raises(Misuse, match="chmod 600"):
        load_keyring(file)
    with pytest.raises(Misuse, match="unisono key new"):
        load_keyring(tmp_path / "none")
    file.write_bytes(b"\xff\xfe")
    file.chmod(0o600)
    with pytest.raises(Misuse, match="not text"):
        load_keyring(file)
    os.mkfifo(tmp_path / "pipe", 0o600)
    for other, told in ((tmp_path, "Is a directory"), (tmp_path / "pipe", "is not a file")):
        with pytest.raises(Misuse, match=told):
            load_keyring(other)


def test_what_a_killed_process_left_beside_a_keyring_is_in_nobodys_way(tmp_path: Path) -> None:
    file = tmp_path / "ring"
    (tmp_path / f".ring.{os.getpid()}").write_text("left")
    save_keyring(file, Keyring((KEY,)), new=True)
    with pytest.raises(Misuse, match="exists"):
        save_keyring(file, Keyring((OTHER_KEY,)), new=True)
    assert load_keyring(file) == Keyring((KEY,)) and list(tmp_path.iterdir()) == [file]


def test_without_the_package_a_key_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("cryptography")]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(Misuse, match=r"pip install 'unisono\[seal\]'"):
        keys.aead_of(KEY)


async def test_a_keyring_is_read_again_when_it_changes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_files, "RELOAD_S", 0.01)
    file = tmp_path / "ring"
    save_keyring(file, Keyring((KEY,)))
    a = Sealed("a")

    watch = KeyFileWatch({file: lambda path: a.seal.rekey(load_keyring(path))})
    watch.start(asyncio.get_running_loop())
    save_keyring(file, Keyring((OTHER_KEY, KEY)))
    await waiting.eventually(lambda: a.seal._use.key == OTHER_KEY)
    file.write_text("nonsense")
    await waiting.eventually(lambda: "the keys stay as they are" in caplog.text)
    assert a.seal._use.key == OTHER_KEY
    os.unlink(file)
    save_keyring(file, Keyring((KEY,)))
    await waiting.eventually(lambda: a.seal._use.key == KEY)
    watch.close()


async def test_half_a_keyring_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An editor, or a copy from elsewhere, writes in place."""
    monkeypatch.setattr(key_files, "RELOAD_S", 1e9)
    file, rings = tmp_path / "ring", list[Keyring]()
    save_keyring(file, Keyring((KEY,)))
    watch = KeyFileWatch({file: lambda path: rings.append(load_keyring(path))})
    loop = asyncio.get_running_loop()
    for text in (f"{OTHER_KEY.hex()}\n", f"{OTHER_KEY.hex()}\n{HEX}\n"):
        file.write_text(text)
        watch._look(loop)
        watch.close()
    assert not rings
    watch._look(loop)
    watch.close()
    assert rings == [Keyring((OTHER_KEY, KEY))]


def test_the_command_makes_and_changes_keyrings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(tmp_path / "ring")
    assert cli.run(["key", "new", file]) == 0
    (first,) = load_keyring(Path(file)).keys
    assert cli.run(["key", "new"]) == 0
    second = capsys.readouterr().out.strip()
    for step in (["install", file, second], ["use", file, second], ["remove", file, first.hex()]):
        assert cli.run(["key", *step]) == 0
    assert load_keyring(Path(file)).keys == (bytes.fromhex(second),)
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{HEX}\n"))
    assert cli.run(["key", "install", file, "-"]) == 0
    assert load_keyring(Path(file)).keys == (bytes.fromhex(second), KEY)
    for wrong in (["new", file], ["install", file, "xx"], ["remove", file, second]):
        assert cli.run(["key", *wrong]) == 2
        assert capsys.readouterr().err.count("\n") == 1
