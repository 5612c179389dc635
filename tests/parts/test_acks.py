"""The matrix says what a list of all that it was told says, read anew each time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from unisono.parts.acks import AckMatrix

NAMES = st.sampled_from("abcd")
TOLD = st.one_of(
    st.tuples(st.just("note"), NAMES, NAMES, st.integers(0, 6)),
    st.tuples(st.just("add"), NAMES, NAMES, st.integers(0, 6)),
    st.tuples(st.just("remove"), NAMES, st.just("a"), st.just(0)),
)


class Slow:
    """The twin: remembers what was told, and works everything out when it is asked."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, str, int]] = []

    def rows(self) -> dict[str, list[tuple[str, int]]]:
        rows: dict[str, list[tuple[str, int]]] = {}
        for what, who, sender, number in self.told:
            if what == "add" and who not in rows:
                rows[who] = [(sender, number)]
            elif what == "remove":
                rows.pop(who, None)
            elif what == "note" and who in rows:
                rows[who].append((sender, number))
        return rows

    def known(self, holder: str, sender: str) -> int:
        row = self.rows().get(holder, [])
        return max((number for who, number in row if who == sender), default=0)

    def stable(self, sender: str) -> int:
        return min((self.known(holder, sender) for holder in self.rows()), default=0)


@given(st.lists(TOLD, max_size=40))
def test_the_matrix_equals_its_slow_twin(told: list[tuple[str, str, str, int]]) -> None:
    acks, slow = AckMatrix[str](), Slow()
    for each in told:
        what, who, sender, number = each
        before = slow.known(who, sender) if who in slow.rows() else None
        slow.told.append(each)
        if what == "add":
            acks.add(who, {sender: number})
        elif what == "remove":
            acks.remove(who)
        else:
            assert acks.note(who, sender, number) == (before is not None and number > before)
        assert set(acks.members) == set(slow.rows())
        for name in "abcd":
            assert acks.stable(name) == slow.stable(name)
            for holder in "abcd":
                assert acks.known(holder, name) == slow.known(holder, name)
            held = {who for who in slow.rows() if slow.known(who, name) >= 3}
            assert set(acks.holders(name, 3)) == held
            assert acks.is_held_by(name, 3, 2) == (len(held) >= 2)


def test_what_is_stable_is_what_the_slowest_has() -> None:
    acks = AckMatrix("abc")
    for holder, number in (("a", 5), ("b", 3), ("c", 4)):
        acks.note(holder, "a", number)
    assert acks.stable("a") == 3
    assert not acks.note("b", "a", 2), "what is known does not shrink"
    acks.remove("b")
    assert acks.stable("a") == 4, "who is gone is not waited for"
    acks.add("d")
    assert acks.stable("a") == 0
    assert acks.holders("a", 5) == ("a",)
