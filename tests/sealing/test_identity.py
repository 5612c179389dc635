"""Identities: the group's key alone opens nothing, and says nothing that is believed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sealing.stage import KEY, Sealed, carry, identified
from unisono import cli
from unisono.errors import Misuse
from unisono.net.key_files import load_allowed, load_identity
from unisono.sealing.greeting import group_key, open_greeting
from unisono.sealing.identity import Identity, read_allowed, read_identity
from unisono.sealing.records import SignedChallenge, SignedHello
from unisono.sealing.sessions import ASK_AGAIN_US

TEXT = b"a text that only members read " * 4


def test_members_of_the_list_hear_each_other() -> None:
    a, b = identified("ab")
    for one, other in ((a, b), (b, a)):
        carry(one, other, one.packets(TEXT))
        assert other.heard == [TEXT]
        carry(one, other, one.packets(*[TEXT] * 9))
        assert other.heard == [TEXT] * 10
        assert not [name for name in other.counts if name.startswith("drop.")]


def test_who_is_not_in_the_list_is_not_heard_and_hears_nothing() -> None:
    """It has the group's key, and an identity of its own."""
    a, stranger = identified("a"), identified("c")
    member, outsider = a[0], stranger[0]
    outsider.seal._peers._signer.allowed = member.seal._peers._signer.allowed | {  # type: ignore
        "c": Identity("c", b"c" * 32).public()
    }
    carry(outsider, member, outsider.packets(TEXT))
    assert not member.heard and member.dropped("not_allowed")
    assert "'c' in group g, and is not in the list" in member.seal.unread
    carry(member, outsider, member.packets(TEXT))
    assert not outsider.heard, "its challenge is not answered"
    assert not member.counts.get("seal.answered")


def test_a_listed_name_with_another_key_is_not_believed() -> None:
    (a, b), (forger,) = identified("ab"), identified("b", private=b"x" * 32)
    forger.seal._peers._signer.allowed = b.seal._peers._signer.allowed  # type: ignore[union-attr]
    carry(forger, a, forger.packets(TEXT))
    carry(a, forger, a.packets(TEXT))
    assert not a.heard and not forger.heard and a.dropped("not_allowed") == 2


def test_the_key_of_the_group_opens_a_greeting_but_not_its_secret() -> None:
    a, b = identified("ab")
    sent = a.packets(TEXT)
    ((_, challenge),) = b.take(a, sent)
    ((_, hello),) = a.take(b, [challenge])
    key = group_key(KEY, "g")
    asked, answered = open_greeting(key, challenge), open_greeting(key, hello)
    assert isinstance(asked, SignedChallenge) and isinstance(answered, SignedHello)
    (thief,) = identified("c")
    assert thief.seal._peers._signer.secret_of(answered) is None  # type: ignore[union-attr]
    # Whoever asks with a recorded challenge gets an answer that only its maker can open.
    ((_, again),) = a.take(thief, [challenge])
    recorded = open_greeting(key, again)
    assert isinstance(recorded, SignedHello)
    assert thief.seal._peers._signer.secret_of(recorded) is None  # type: ignore[union-attr]


@pytest.mark.parametrize("field", SignedHello._fields)
def test_a_changed_field_of_a_signed_answer_is_not_believed(field: str) -> None:
    """By one that has the group's key, and so can seal the greeting anew."""
    a, b = identified("ab")
    ((_, challenge),) = b.take(a, a.packets(TEXT))
    ((_, hello),) = a.take(b, [challenge])
    key = group_key(KEY, "g")
    greeting = open_greeting(key, hello)
    value = getattr(greeting, field)
    changed = value + 1 if isinstance(value, int) else bytes([value[0] ^ 1]) + bytes(value[1:])
    forged = greeting._replace(**{field: changed})
    b.take(a, [a.seal._peers._greetings._sealed(key, 7, forged)])
    assert not b.heard and not b.counts.get("seal.met")
    assert b.dropped("not_allowed") + b.dropped("replay") == 1


def test_a_key_for_the_exchange_that_is_none_gets_no_answer() -> None:
    """Of small order: the secret would be sealed with a key that all know."""
    a, b = identified("ab")
    ((_, challenge),) = b.take(a, a.packets(TEXT))
    key = group_key(KEY, "g")
    asked = open_greeting(key, challenge)
    assert isinstance(asked, SignedChallenge)
    signer = b.seal._peers._signer
    assert signer is not None
    zero = asked._replace(exchange=bytes(32), signature=bytes(64))
    zero = zero._replace(signature=signer._signed(zero))
    assert not a.take(b, [b.seal._peers._greetings._sealed(key, 6, zero)])
    assert a.dropped("malformed") == 1


def test_members_with_and_without_identities_do_not_mix() -> None:
    (a,), plain = identified("a"), Sealed("p")
    for one, other in ((a, plain), (plain, a)):
        carry(one, other, one.packets(TEXT))
        assert not other.heard
    assert a.dropped("unsigned") and plain.dropped("signed")
    for each in (a, plain):
        assert "identity= and allowed= at every member, or at none" in each.seal.unread


def test_one_that_is_taken_off_the_list_reads_no_more() -> None:
    a, b, c = identified("abc")
    for one in (b, c):
        carry(a, one, a.packets(TEXT))
        carry(one, a, one.packets(TEXT))
    left = {name: key for name, key in a.seal._peers._signer.allowed.items() if name != "c"}  # type: ignore
    a.seal.allow(left)
    a.now_us = b.now_us = c.now_us = 2 * ASK_AGAIN_US
    for each in (a, b, c):
        each.heard.clear()
    carry(a, b, a.packets(TEXT))
    carry(a, c, a.packets(TEXT))
    carry(c, a, c.packets(TEXT))
    assert b.heard == [TEXT] and not c.heard and not a.heard


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "has 0 members: write 1 to"),
        ("ann", "line 1: write a member"),
        (f"ann {'0' * 63}", "line 1: write a member"),
        (f"# x\nann {'0' * 64}\nann {'1' * 64}", "line 3: ann has another key"),
    ],
)
def test_a_bad_list_is_told(text: str, told: str) -> None:
    with pytest.raises(Misuse, match=told):
        read_allowed(text, "l")


def test_a_bad_identity_is_told_without_its_key() -> None:
    with pytest.raises(Misuse, match="has 2 lines") as error:
        read_identity(f"a {'2' * 64}\nb {'2' * 64}", "i")
    assert "222" not in str(error.value)


def test_the_command_makes_an_identity_and_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "ann.identity"
    assert cli.run(["key", "identity", str(file), "ann"]) == 0
    listed = tmp_path / "allowed"
    listed.write_text(capsys.readouterr().out)
    made = load_identity(file)
    assert made.name == "ann" and load_allowed(listed) == {"ann": made.public()}
    for wrong in ([str(file), "ann"], [str(tmp_path / "new"), "an n"]):
        assert cli.run(["key", "identity", *wrong]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    file.chmod(0o644)
    with pytest.raises(Misuse, match="others may read it"):
        load_identity(file)
