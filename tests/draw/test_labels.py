"""Labels are read without knowing any protocol."""

from __future__ import annotations

import pytest

from unisono.draw.labels import PacketLabel, category, named, owners, parsed, runs, together


@pytest.mark.parametrize(
    ("label", "parts"),
    [
        ("data 5.0", PacketLabel("data", "5", 0, 0)),
        ("nak 5.1-5.3", PacketLabel("nak", "5", 1, 3)),
        ("nak 5.1-3", PacketLabel("nak", "5", 1, 3)),
        ("grant 6", PacketLabel("grant", "", 6, 6)),
        ("data a.b.7 bye", PacketLabel("data", "a.b", 7, 7, " bye")),
        ("state 0-99 of 400", PacketLabel("state", "", 0, 99, " of 400")),
        ("nak a.5-7 b.2", PacketLabel("nak", "a", 5, 7, " b.2")),
        ("data 5.3 end", PacketLabel("data", "5", 3, 3, ends=True)),
        ("data 5.0 end view", PacketLabel("data", "5", 0, 0, " view", ends=True)),
        ("data 5.0 ending", PacketLabel("data", "5", 0, 0, " ending")),
        ("beat", PacketLabel("beat")),
        ("refuse: full 3", PacketLabel("refuse: full 3")),
        ("nak 5.3-5.1", PacketLabel("nak 5.3-5.1")),
        ("", PacketLabel("")),
        ("data " + "9" * 30, PacketLabel("data " + "9" * 30)),
    ],
)
def test_a_label_is_taken_apart(label: str, parts: PacketLabel) -> None:
    assert parsed(label) == parts


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        (["data 5.0"], "data 5.0"),
        (["data 5.0", "data 5.1", "data 5.2"], "data 5.0–2"),
        (["data 5.0", "data 5.1", "data 5.3"], "data 5.0–1, 3"),
        (["data 5.3", "data 5.0-5.2"], "data 5.0–3"),
        (["data 5.2 end", "data 5.0", "data 5.1"], "data 5.0–2 end"),
        (["beat", "beat"], "beat ×2"),
        (["data 5.0", "data 6.0"], "data 5.0, data 6.0"),
        (["state 0-9 of 20", "state 10-19 of 20"], "state 0–19 of 20"),
        (["grant 6", "grant 6"], "grant 6"),
        ([], ""),
    ],
)
def test_labels_are_merged(labels: list[str], text: str) -> None:
    assert together(labels) == text


@pytest.mark.parametrize(
    ("label", "kind"),
    [
        ("data 5.0", "data"),
        ("repair 5.0", "repair"),
        ("NAK 5.1-5.3", "nak"),
        ("deny 5", "refusal"),
        ("refuse: no state", "refusal"),
        ("token 35", "token"),
        ("token 34 null", "quiet"),
        ("data 34 null", "data"),
        ("request", "token"),
        ("grant 6", "token"),
        ("join", "join"),
        ("confirm 3", "join"),
        ("state-ask from 0", "state"),
        ("empty 5.9", "quiet"),
        ("report", "quiet"),
        ("frobnicate data", "other"),
        ("", "other"),
    ],
)
def test_the_first_word_of_a_label_is_its_category(label: str, kind: str) -> None:
    assert category(label) == kind


def test_a_stream_is_named_after_its_first_sender() -> None:
    sent = [("a", "nak @0b.1"), ("b", "data @0b.1"), ("a", "data @0b.1"), ("a", "data @0a.2")]
    assert owners(sent) == {"@0b": "b", "@0a": "a"}
    assert named("nak @0b.1-3 @0c.1", {"@0b": "b"}) == "nak b.1-3 @0c.1"


def test_runs_are_short() -> None:
    assert runs([(3, 3), (1, 1), (2, 2), (9, 9)]) == "1–3, 9"
    assert runs([(1, 5), (2, 3), (6, 7)]) == "1–7"
    assert runs([]) == ""
