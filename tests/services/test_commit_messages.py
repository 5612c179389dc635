"""Messages of actions round-trip, and nothing else is taken for one."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unisono.errors import Misuse
from unisono.services.commit.messages import (
    MARK,
    OPERATIONS_BYTES_MAX,
    PAYLOAD_BYTES_MAX,
    BadCommitMessage,
    CommitRequest,
    Notice,
    Vote,
    encoded,
    read,
)

NAMES = st.text("abcXYZ019._@+-", min_size=1, max_size=64)
KEYS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=96)
ASKS = st.builds(
    CommitRequest, KEYS, st.dictionaries(NAMES, st.binary(max_size=200), min_size=1, max_size=64)
)
VOTES = st.builds(Vote, KEYS, st.text(max_size=200))
NOTICES = st.builds(Notice, KEYS, NAMES, st.text(max_size=200))


@given(st.one_of(ASKS, VOTES, NOTICES))
def test_messages_round_trip(word: CommitRequest | Vote | Notice) -> None:
    payload = encoded(word)
    assert read(payload) == word and len(payload) <= PAYLOAD_BYTES_MAX


def test_the_largest_request_fits() -> None:
    names = [f"{number:064}" for number in range(64)]
    word = CommitRequest("k" * 96, dict.fromkeys(names, b"x" * (OPERATIONS_BYTES_MAX // 64)))
    assert read(encoded(word)) == word


@settings(max_examples=400)
@given(st.binary(max_size=60))
def test_hostile_bytes_are_malformed(tail: bytes) -> None:
    assert read(b"x" + tail) is None
    with pytest.raises(BadCommitMessage):
        read(MARK + tail)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=3), each),
    max_leaves=6,
)


@settings(max_examples=400)
@given(st.sampled_from([("ask", "do"), ("vote", "no"), ("ask", "no")]), JSON, JSON)
def test_hostile_json_is_a_message_or_malformed(
    names: tuple[str, str], one: object, two: object
) -> None:
    payload = MARK + json.dumps({names[0]: one, names[1]: two}).encode()
    try:
        word = read(payload)
    except BadCommitMessage:
        return
    assert word is not None and read(encoded(word)) == word


@pytest.mark.parametrize(
    "text",
    [
        b'{"ask":"k","do":{"a":"not base64!"}}',
        b'{"ask":"k","do":{"a":"ZG8=","":"ZG8="}}',
        b'{"ask":"a b","do":{"a":"ZG8="}}',
        b'{"ask":"k","do":{}}',
        b'{"ask":"k","do":{"a":"ZG8="},"more":1}',
        b'{"vote":"k","no":null}',
        b'{"vote":"","no":""}',
        b'{"gone":"a b","from":"k","why":"x"}',
        b'{"gone":"a","from":"k","why":1}',
        b'{"gone":"a","from":"k"}',
        b'{"vote":"k","no":"' + b"x" * 201 + b'"}',
        b"[" * 50_000,
        b" " * PAYLOAD_BYTES_MAX,
    ],
)
def test_malformed_messages_are_refused(text: bytes) -> None:
    with pytest.raises(BadCommitMessage):
        read(MARK + text)


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (CommitRequest("", {"a": b""}), "1 to 96 printable"),
        (CommitRequest("k", {}), "1 to 64 participants"),
        (CommitRequest("k", {f"n{n}": b"" for n in range(65)}), "1 to 64 participants, not 65"),
        (CommitRequest("k", {"a b": b""}), "write a member's name"),
        (CommitRequest("k", {"a": "text"}), "must be bytes, not str"),  # type: ignore[dict-item]
        (CommitRequest("k", {"a": b"x" * (OPERATIONS_BYTES_MAX + 1)}), "over 16384"),
    ],
)
def test_a_request_over_the_bounds_is_refused(ask: CommitRequest, says: str) -> None:
    with pytest.raises(Misuse, match=says):
        encoded(ask)
