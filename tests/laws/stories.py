"""Sound histories and doctored ones, in the words of `telling`; Python and Spark judge both."""

from __future__ import annotations

from typing import NamedTuple

from tests.laws.telling import story, write_trace
from unisono.trace.history import History

__all__ = ["DOCTORED", "SOUND", "Doctored", "Sound", "story", "write_trace"]


class Doctored(NamedTuple):
    """A history in which one law is broken; others may be broken by it too."""

    name: str
    law: str
    history: History


def _doctored(law: str, name: str, text: str, service: str = "causal", torn: str = "") -> Doctored:
    return Doctored(name, law, story(text, service, torn, run=name.replace(" ", "-")))


class Sound(NamedTuple):
    """A history in which every law is kept, but for those that such a protocol does not claim."""

    name: str
    history: History
    but: tuple[str, ...] = ()


def _sound(name: str, text: str, service: str = "causal", torn: str = "", but: str = "") -> Sound:
    history = story(text, service, torn, run=name.replace(" ", "-"))
    return Sound(name, history, tuple(but.split()))


# fmt: off
DOCTORED: list[Doctored] = [
    _doctored("no_creation", "a message from nowhere", """
        a: view 1 a b | send | a:1
        b: view 1 a b | a:1 | a:2
    """),
    _doctored("no_creation", "a message changed on the way", """
        a: view 1 a b | send | a:1
        b: view 1 a b | a:1!
    """),
    _doctored("no_creation", "a message before the joiner's time", """
        a: view 1 a | send | send | a:1 | a:2 | view 2 a b | send | a:3
        b: view 2 a b cut a:2 | a:2 | a:3
    """),
    _doctored("no_creation", "a lost file does not excuse what it holds", """
        a: view 1 a b | send 2 | a:2
        b: view 1 a b | a:1 | a:2 | a:3
    """, torn="a"),
    _doctored("no_creation", "two forms of a message whose sender told nothing", """
        b: view 1 a b c | a:1 | a:2
        c: view 1 a b c | a:1 | a:2!
    """),
    _doctored("no_creation", "two forms of a killed sender's last message", """
        a: view 1 a b c | send | a:1
        b: view 1 a b c | a:1 | a:2! | view 2 b c
        c: view 1 a b c | a:1 | a:2 | view 2 b c
    """),
    _doctored("no_creation", "a safe message delivered as a weaker one", """
        a: view 1 a b | send safe | a:1
        b: view 1 a b | a:1 agreed | crash
    """),
    _doctored("no_creation", "two services of a message whose sender told nothing", """
        b: view 1 a b c | a:1 safe
        c: view 1 a b c | a:1 agreed
    """),
    _doctored("no_duplication", "the same message twice", """
        a: view 1 a b | send | a:1
        b: view 1 a b | a:1 | a:1
    """),
    _doctored("no_duplication", "twice, with a view between", """
        a: view 1 a b | send | a:1 | view 2 a b
        b: view 1 a b | a:1 | view 2 a b | a:1
    """),
    _doctored("fifo", "two of one sender the wrong way round", """
        a: view 1 a b | send fifo | send fifo | a:1 | a:2
        b: view 1 a b | a:2 | a:1
    """),
    _doctored("fifo", "a hole in one sender's messages", """
        a: view 1 a b | send | send | send | a:1 | a:2 | a:3
        b: view 1 a b | a:1 | a:3
    """),
    _doctored("fifo", "a joiner begins too late", """
        a: view 1 a | send | a:1 | view 2 a b | send | send | a:2 | a:3
        b: view 2 a b cut a:1 | a:3
    """),
    _doctored("fifo_by_level", "an ordered message before an earlier one in its sender's order", """
        a: view 1 a b | send fifo | send agreed | a:1 | a:2
        b: view 1 a b | a:2 | a:1
    """),
    _doctored("fifo_by_level", "a weaker message overtakes, and the next of its level too", """
        a: view 1 a b | send agreed | send fifo | send fifo | a:1 | a:2 | a:3
        b: view 1 a b | a:3 | a:1 | a:2
    """),
    _doctored("fifo_by_level", "an ordered message without the weaker one before it", """
        a: view 1 a b | send agreed | send fifo | send fifo | send agreed
        a: a:2 | a:3 | a:1 | a:4
        b: view 1 a b | a:2 | a:1 | a:4
    """),
    _doctored("fifo_by_level", "a weaker message does not excuse a hole of the stronger", """
        a: view 1 a b | send agreed | send fifo | send agreed | a:1 | a:2 | a:3
        b: view 1 a b | a:2 | a:3
    """),
    _doctored("fifo_by_level", "a joiner that lacks the first of a level", """
        a: view 1 a | send fifo | a:1 | view 2 a b | send agreed | send fifo | send fifo
        a: a:2 | a:3 | a:4
        b: view 2 a b cut a:1 | a:4 | a:2
    """),
    _doctored("causal", "the answer before the question", """
        a: view 1 a b c | send | a:1 | b:1
        b: view 1 a b c | a:1 | send | b:1
        c: view 1 a b c | b:1 | a:1
    """),
    _doctored("fifo", "one that comes back says more before the merge than its cut tells", """
        a: view 1 a b | send | a:1 | view 2 a | send | send | a:2 | a:3
        b: view 1 a b | a:1 | view 3 b
        a: view 4 a b | send | a:4
        b: view 4 a b cut a:2 | a:4
    """),
    _doctored("no_creation", "a message of the other component after the merge", """
        a: view 1 a b | send | a:1 | view 2 a | send | send | a:2 | a:3
        b: view 1 a b | a:1 | view 3 b | view 4 a b cut a:3 | a:3
        a: view 4 a b
    """),
    _doctored("causal", "a joiner's answer before what it adopted", """
        a: view 1 a b | send | a:1 | view 2 a b c | c:1
        b: view 1 a b | view 2 a b c | c:1 | a:1
        c: view 2 a b c cut a:1 | send | c:1
    """),
    _doctored("causal", "after a merge the answer comes before the other component's words", """
        a: view 1 a b c | view 2 a c | send | a:1 | view 4 a b c | b:1
        b: view 1 a b c | view 3 b | view 4 a b c cut a:1 | send | b:1
        c: view 1 a b c | view 2 a c | view 4 a b c | b:1 | a:1
    """),
    _doctored("agreement", "one of a component misses what was said there before a merge", """
        a: view 1 a b c | view 2 a b | send | a:1 | view 4 a b c
        b: view 1 a b c | view 2 a b | view 4 a b c
        c: view 1 a b c | view 3 c | view 4 a b c cut a:1
    """),
    _doctored("agreement", "one misses what was said after a merge", """
        a: view 1 a b | view 2 a | send | a:1 | view 4 a b | send | a:2
        b: view 1 a b | view 3 b | view 4 a b cut a:1
    """),
    _doctored("agreement", "one that comes along misses a message of one that does not", """
        a: view 1 a b c | c:1 | transitional 1t a b stayed a b | view 2 a b stayed a b
        b: view 1 a b c | transitional 1t a b stayed a b | view 2 a b stayed a b
        c: view 1 a b c | send | c:1 | crash
    """),
    _doctored("causal", "one that comes along misses what its companion knew", """
        a: view 1 a b c | view 2 a b stayed a b | b:1
        b: view 1 a b c | c:1 | view 2 a b stayed a b | send | b:1
        c: view 1 a b c | send | c:1 | crash
    """),
    _doctored("virtual_synchrony", "one of a transitional set misses a message", """
        a: view 1 a b c | send | a:1 | view 2 a b c stayed a b
        b: view 1 a b c | view 2 a b c stayed a b
        c: view 1 a b c | view 2 a b c cut a:1 stayed c
    """),
    _doctored("gap_free", "one that comes back is not told what was said meanwhile", """
        a: view 1 a b c | view 2 a b | send | a:1@1 | view 3 a b c at 1
        b: view 1 a b c | view 2 a b | a:1@1 | view 3 a b c at 1
        c: view 1 a b c at 0 | view 3 a b c at 1 | crash
    """, "safe"),
    _doctored("causal", "the answer without the question", """
        a: view 1 a b c | send | a:1 | b:1 | crash
        b: view 1 a b c | a:1 | send | b:1 | view 2 b c
        c: view 1 a b c | b:1 | view 2 b c
    """),
    _doctored("causal", "a joiner hears the answer alone", """
        a: view 1 a b | send | a:1 | view 2 a b c | send | a:2 | b:1
        b: view 1 a b | a:1 | view 2 a b c | a:2 | send | b:1
        c: view 2 a b c cut a:1 | b:1 | a:2
    """),
    _doctored("total_order", "two messages crossed", """
        a: view 1 a b | send | a:1 | b:1
        b: view 1 a b | send | b:1 | a:1
    """, "agreed"),
    _doctored("total_order", "one message in two places", """
        a: view 1 a b | send | a:1@1
        b: view 1 a b | a:1@2
    """, "safe"),
    _doctored("total_order", "places that do not rise", """
        a: view 1 a b | send | send | a:1@2 | a:2@2
        b: view 1 a b | a:1@2 | a:2@2
    """, "resilient(2)"),
    _doctored("total_order", "a cycle over three lives of which no two disagree", """
        a: view 1 a b c | send | a:1 | b:1 | crash
        b: view 1 a b c | send | b:1 | c:1 | crash
        c: view 1 a b c | send | c:1 | a:1 | crash
    """, "agreed"),
    _doctored("total_order", "a cycle over three components", """
        a: view 1 a b c d e f | view 2 a b | send | a:1 | b:1
        b: view 1 a b c d e f | view 2 a b | send | a:1 | b:1
        c: view 1 a b c d e f | view 3 c d | send | c:1 | d:1
        d: view 1 a b c d e f | view 3 c d | send | c:1 | d:1 | view 5 a d | a:1
        e: view 1 a b c d e f | view 4 e f | b:1 | c:1
        f: view 1 a b c d e f | view 4 e f | b:1 | c:1
    """, "agreed"),
    _doctored("one_place", "who forgot a safe message gives its place to an agreed one", """
        a: view 1 a b c at 0 founded | view 2 a b at 0 | send | a:1@1 | crash
        b: view 1 a b c at 0 founded | view 2 a b at 0 | a:1@1 | crash
        c: view 1 a b c at 0 founded | view 3 a#2 c at 0 | send agreed | c:1@1
        a#2: view 3 a#2 c at 0 | c:1@1
    """, "safe"),
    _doctored("one_place", "two primaries give one place to two messages", """
        a: view 1 a b c | view 2 a b | send | a:1@1
        b: view 1 a b c | view 2 a b | a:1@1
        c: view 1 a b c | view 3 c | send | c:1@1
    """, "safe"),
    _doctored("one_place", "a safe message of one that crashed comes to another place", """
        a: view 1 a b | send | a:1@1 | crash
        b: view 1 a b | view 2 b | send | b:1@1 | a:1@2
    """, "safe"),
    _doctored("one_place", "a group that goes on from its records uses a place again", """
        a: view 1 a b founded | send | a:1@1 | crash
        b: view 1 a b founded | a:1@1 | crash
        a#2: restart | view 5 a#2 b#2 | send | a#2:1@1
        b#2: restart | view 5 a#2 b#2 | a#2:1@1
    """, "safe"),
    _doctored("one_place", "two at one place, of views that one that was let go on had before", """
        a: view 1 a c founded at 0 | send | a:1@1 | crash
        c: view 1 a c founded at 0 | view 2 b c at 0 | view 3 c parted at 0
        b: view 2 b c at 0 | send | b:1@1
    """, "safe"),
    _doctored("one_place", "two at one place in a part that was let go on", """
        a: view 1 a b c | crash
        b: view 1 a b c | view 2 b c parted | send | b:1@1 | crash
        c: view 1 a b c | view 2 b c parted | view 3 c | send | c:1@1
    """, "safe"),
    _doctored("one_place", "the place of what was safe with one that was then let go on", """
        a: view 1 a b c founded at 0 | send | crash
        b: view 1 a b c founded at 0 | view 2 a#2 b at 0 | send | b:1@1
        c: view 1 a b c founded at 0 | a:1@1 | view 3 c parted at 1 | crash
        a#2: restart | view 2 a#2 b at 0 | b:1@1
    """, "safe"),
    _doctored("one_place", "the others go back before what was safe with one let go on", """
        a: view 1 a b c founded at 0 | send | crash
        b: view 1 a b c founded at 0 | view 2 a#2 b at 0
        c: view 1 a b c founded at 0 | a:1@1 | view 3 c parted at 1 | left
        a#2: restart | view 2 a#2 b at 0
    """, "safe"),
    _doctored("uniform_order", "an agreed message of one that crashed loses its place", """
        a: view 1 a b | send | a:1@1 | crash
        b: view 1 a b | view 2 b | send | b:1@1
    """, "agreed"),
    _doctored("uniform_order", "one ordered message in two places of two components", """
        a: view 1 a b c | send | a:1@1 | crash
        b: view 1 a b c | send | view 2 b c | b:1@1 | a:1@2
        c: view 1 a b c | view 2 b c | b:1@1 | a:1@2
    """, "resilient(2)"),
    _doctored("gap_free", "a gap in places and then a stop", """
        a: view 1 a b | send | send | send | a:1@1 | a:2@2 | a:3@3 | view 2 a
        b: view 1 a b | a:1@1 | a:3@3 | stop
    """, "agreed"),
    _doctored("gap_free", "two places passed over before a crash", """
        a: view 1 a b c at 0 | send | send | send | send | a:1@1 | a:2@2 | a:3@3 | a:4@4
        b: view 1 a b c at 0 | a:1@1 | a:4@4 | crash
        c: view 1 a b c at 0 | a:2@2 | a:3@3 | crash
    """, "safe"),
    _doctored("gap_free", "a joiner passes over the first place after its view", """
        a: view 1 a | send | a:1@1 | view 2 a b at 1 | send | send | a:2@2 | a:3@3
        b: view 2 a b cut a:1 at 1 | a:3@3 | crash
    """, "safe"),
    _doctored("gap_free", "a place passed over before one is let go on", """
        a: view 1 a b c founded at 0 | send | send | send | a:1@1 | a:2@2 | a:3@3 | view 2 a b at 3
        b: view 1 a b c founded at 0 | a:1@1 | a:2@2 | a:3@3 | view 2 a b at 3
        c: view 1 a b c founded at 0 | a:1@1 | a:3@3 | view 3 c parted at 3 | crash
    """, "agreed"),
    _doctored("prefix", "one misses a message in the middle", """
        a: view 1 a b c | send | a:1 | b:1 | c:1
        b: view 1 a b c | send | a:1 | b:1 | c:1
        c: view 1 a b c | send | a:1 | c:1
    """, "agreed"),
    _doctored("prefix", "nothing in common though they began together", """
        a: view 1 a b | send | a:1
        b: view 1 a b | send | b:1
    """, "agreed"),
    _doctored("prefix", "a joiner misses one after its first", """
        a: view 1 a | send | a:1 | view 2 a b | send | send | send | a:2 | a:3 | a:4
        b: view 2 a b cut a:1 | a:2 | a:4
    """, "safe"),
    _doctored("prefix", "one that began with the others misses their first, and crashes", """
        a: view 1 a b c | send | a:1 | b:1 | view 2 a b
        b: view 1 a b c | send | a:1 | b:1 | view 2 a b
        c: view 1 a b c | b:1 | crash
    """, "agreed"),
    _doctored("view_prefix", "one that crashes misses a message in the middle of a view", """
        a: view 1 a b c | send | send | a:1 | a:2 | b:1 | view 2 a b
        b: view 1 a b c | send | a:1 | a:2 | b:1 | view 2 a b
        c: view 1 a b c | a:1 | b:1 | crash
    """, "agreed"),
    _doctored("view_prefix", "one that parts misses the first message of a later view", """
        a: view 1 a b c | send | a:1 | view 2 a b c | send | a:2 | b:1 | view 3 a b
        b: view 1 a b c | a:1 | view 2 a b c | send | a:2 | b:1 | view 3 a b
        c: view 1 a b c | a:1 | view 2 a b c | b:1 | view 4 c
    """, "agreed"),
    _doctored("agreement", "one of three does not deliver", """
        a: view 1 a b c | send reliable | a:1
        b: view 1 a b c | a:1
        c: view 1 a b c
    """),
    _doctored("agreement", "a joiner misses what came after its cut", """
        a: view 1 a | send | a:1 | view 2 a b | send | a:2
        b: view 2 a b cut a:1
    """),
    _doctored("agreement", "a crashed sender's message reaches only some", """
        a: view 1 a b c | send | a:1 | crash
        b: view 1 a b c | a:1 | view 2 b c
        c: view 1 a b c | view 2 b c
    """),
    _doctored("agreement", "a leaver's last words reach only some", """
        a: view 1 a b c | send | a:1 | left
        b: view 1 a b c | a:1 | view 2 b c
        c: view 1 a b c | view 2 b c
    """),
    _doctored("agreement", "a leaver goes without what was before its leave", """
        a: view 1 a b c | left
        b: view 1 a b c | send | b:1 | view 2 b c
        c: view 1 a b c | b:1 | view 2 b c
    """),
    _doctored("agreement", "the last of all to leave misses one", """
        a: view 1 a b c | send | a:1 | b:1 | left
        b: view 1 a b c | send | a:1 | b:1 | view 2 b c | left
        c: view 1 a b c | b:1 | view 2 b c | view 3 c | left
    """),
    _doctored("agreement", "the last to leave misses what its companion said before leaving", """
        a: view 1 a b | left
        b: view 1 a b | view 2 b c | send | b:1 | left
        c: view 2 b c | view 3 c | left
    """),
    _doctored("validity", "one's own message is lost", """
        a: view 1 a b | send | a:1 | send
        b: view 1 a b | a:1
    """),
    _doctored("validity", "a clean leave loses its own message", """
        a: view 1 a b | send reliable | left
        b: view 1 a b | view 2 b
    """),
    _doctored("virtual_synchrony", "delivered on the other side of a view", """
        a: view 1 a b | send | a:1 | view 2 a b
        b: view 1 a b | view 2 a b | a:1
    """),
    _doctored("virtual_synchrony", "one crosses without the message", """
        a: view 1 a b c | send | a:1 | crash
        b: view 1 a b c | a:1 | view 2 b c | stop expelled
        c: view 1 a b c | view 2 b c
    """),
    _doctored("view_order", "one view, two memberships", """
        a: view 1 a b
        b: view 1 a b c
    """),
    _doctored("view_order", "a view installed twice", """
        a: view 1 a b | view 1 a b
        b: view 1 a b
    """),
    _doctored("view_order", "views the other way round", """
        a: view 1 a b | view 2 a b c | view 3 a b
        b: view 1 a b | view 3 a b | view 2 a b c
    """),
    _doctored("view_order", "nobody is told who is new", """
        a: view 1 a b joined a b | view 2 a b c joined left
        b: view 1 a b joined a b | view 2 a b c joined left
        c: view 2 a b c joined c
    """),
    _doctored("view_order", "a member is said to have gone, and another one has", """
        a: view 1 a b c d | view 2 a b c left c
        b: view 1 a b c d | view 2 a b c left c
        c: view 1 a b c d | view 2 a b c left c
    """),
    _doctored("view_order", "a life and the next one of its node in one view", """
        a: view 1 a b | crash
        a#2: view 2 a a#2 b
        b: view 1 a b | view 2 a a#2 b
    """),
    _doctored("view_order", "a member twice in a transitional view", """
        a: view 1 a b | transitional 1t a b b | view 2 a b
        b: view 1 a b | transitional 1t a b b | view 2 a b
    """),
    _doctored("self_inclusion", "in a transitional view without itself", """
        a: view 1 a b | transitional 1t b | view 2 a b
        b: view 1 a b | transitional 1t b | view 2 a b
    """),
    _doctored("self_inclusion", "in a view without itself", """
        a: view 1 b
        b: view 1 b
    """),
    _doctored("self_inclusion", "in a view of its former life", """
        a: view 1 a b | crash
        a#2: restart | join | view 2 a b
        b: view 1 a b | view 2 a b
    """),
    _doctored("local_order", "a message of one's own delivered before it is sent", """
        a: view 1 a b | a:1 | send
        b: view 1 a b | a:1
    """),
    _doctored("local_order", "one number for two messages", """
        a: view 1 a b | send | send 1 | a:1
        b: view 1 a b | a:1
    """),
    _doctored("local_order", "a number below an earlier one", """
        a: view 1 a b | send 2 | send 1 | a:1 | a:2
        b: view 1 a b | a:1 | a:2
    """, "reliable"),
    _doctored("local_order", "a transitional view before the first view", """
        a: transitional 1t a b | view 2 a b
        b: view 2 a b
    """),
    _doctored("local_order", "a view ends twice", """
        a: view 1 a b | transitional 1t a b | transitional 2t a | view 2 a
        b: view 1 a b | transitional 1t a b | crash
    """),
    _doctored("local_order", "a stranger in a transitional view", """
        a: view 1 a b | transitional 1t a b c | view 2 a b c
        b: view 1 a b | transitional 1t a b c | view 2 a b c
        c: view 2 a b c
    """),
    _doctored("local_order", "delivered in no view", """
        a: view 1 a b | send | a:1
        b: a:1 | view 1 a b
    """),
    _doctored("local_order", "deeds after a crash", """
        a: view 1 a b | send | a:1 | crash | a:2
        b: view 1 a b | a:1 | view 2 b
    """),
    _doctored("local_order", "a message after a clean leave", """
        a: view 1 a b | left | send
        b: view 1 a b | view 2 b | left | view 3 b
    """),
    _doctored("local_order", "views whose places go back", """
        a: view 1 a b at 0 | send | a:1@1 | view 2 a b at 1 | view 3 a b at 0
        b: view 1 a b at 0 | a:1@1 | view 2 a b at 1 | view 3 a b at 0
    """, "agreed"),
    _doctored("local_order", "a message at a place before its view", """
        a: view 1 a b at 4 | send | a:1@4
        b: view 1 a b at 4 | a:1@4
    """, "agreed"),
    _doctored("view_order", "one view at two places", """
        a: view 1 a b at 0 | send | a:1@1 | view 2 a b at 1
        b: view 1 a b at 0 | a:1@1 | view 2 a b at 2
    """, "agreed"),
    _doctored("cut", "a cut too high hides a lost message", """
        a: view 1 a b | send | a:1 | view 2 a b c | send | a:2
        b: view 1 a b | a:1 | view 2 a b c | a:2
        c: view 2 a b c cut a:2
    """),
    _doctored("cut", "a cut above all that was sent", """
        a: view 1 a | send | a:1 | view 2 a b
        b: view 2 a b cut a:7
    """),
    _doctored("cut", "a cut of one that sent nothing", """
        a: view 1 a b | send | a:1 | view 2 a b c
        b: view 1 a b | a:1 | view 2 a b c
        c: view 2 a b c cut a:1 b:3
    """),
    _doctored("cut", "a merge spares what one of the component never had", """
        a: view 1 a b c | view 2 a b | send | send | a:1 | a:2 | view 4 a b c
        b: view 1 a b c | view 2 a b | a:1 | view 4 a b c
        c: view 1 a b c | view 3 c | view 4 a b c cut a:2
    """),
    _doctored("cut", "a joiner is spared more than an elder that crashed later", """
        a: view 1 a b | send | send | a:1 | view 2 a b c | a:2 | crash
        b: view 1 a b | a:1 | view 2 a b c | a:2
        c: view 2 a b c cut a:2 b:0 | crash
    """),
    _doctored("cut", "one that comes along is spared what it never had", """
        a: view 1 a b at 0 | send | a:1@1 | view 2 a b at 1 | send | a:2@2
        b: view 1 a b at 0 | view 2 a b at 1 cut a:1 | a:2@2
    """, "agreed"),
    _doctored("cut", "survivors are spared what one that crashed had delivered as safe", """
        a: view 1 a b c at 0 | send | send | a:1@1 | a:2@2 | crash
        b: view 1 a b c at 0 | a:1@1 | view 2 b c at 2 cut a:2
        c: view 1 a b c at 0 | a:1@1 | view 2 b c at 2 cut a:2
    """, "safe"),
    _doctored("cut", "one of a transitional set is spared what another delivered on the way", """
        a: view 1 a b c | send | crash
        b: view 1 a b c | a:1 | view 2 b c stayed b c
        c: view 1 a b c | view 2 b c cut a:1 stayed b c
    """),
    _doctored("same_view", "delivered in one view here, in another there", """
        a: view 1 a b | send | a:1 | view 2 a b
        b: view 1 a b | view 2 a b | a:1
    """),
    _doctored("same_view", "a crashed life had it a view earlier", """
        a: view 1 a b c | send | a:1 | crash
        b: view 1 a b c | view 2 b c | a:1
        c: view 1 a b c | a:1 | view 2 b c
    """, "safe"),
    _doctored("same_view", "told in two views of a part that was let go on", """
        a: view 1 a b c founded | view 2 a b parted | send agreed | a:1 | view 3 a b
        b: view 1 a b c founded | view 2 a b parted | view 3 a b | a:1
        c: view 1 a b c founded | crash
    """, "virtual_synchrony"),
    _doctored("same_view", "told in two views of a part, and in one of them by the others", """
        a: view 1 a b c founded | send agreed | a:1
        b: view 1 a b c founded | view 2 b c parted | a:1 | crash
        c: view 1 a b c founded | a:1 | view 2 b c parted | crash
    """),
    _doctored("same_view", "told in one view by one then let go on, in the next by others", """
        a: view 1 a b c founded | send agreed | view 2 a b | a:1
        b: view 1 a b c founded | view 2 a b | a:1
        c: view 1 a b c founded | a:1 | view 3 c parted | crash
    """),
    _doctored("same_view", "one is a view behind", """
        a: view 1 a b | view 2 a b | send | a:1
        b: view 1 a b | a:1 | view 2 a b
    """),
    _doctored("sending_view", "sent in a view and delivered in the next", """
        a: view 1 a b | send | view 2 a b | a:1
        b: view 1 a b | view 2 a b | a:1
    """),
    _doctored("sending_view", "delivered before the sender's view", """
        a: view 1 a b | view 2 a b | send | a:1
        b: view 1 a b | a:1 | view 2 a b
    """),
    _doctored("sender_in_view", "a word of one that is gone", """
        a: view 1 a b c | send | a:1 | crash
        b: view 1 a b c | a:1 | view 2 b c
        c: view 1 a b c | view 2 b c | a:1
    """),
    _doctored("sender_in_view", "a word of one that is not here yet", """
        a: view 1 a | b:1 | view 2 a b
        b: view 2 a b | send | b:1
    """),
    _doctored("transitional_set", "one that says it comes along came another way", """
        a: view 1 a b c | view 3 a b c stayed a b c
        b: view 1 a b c | view 3 a b c stayed a b
        c: view 1 a b c | view 2 c | view 3 a b c stayed c
    """),
    _doctored("transitional_set", "of three that came along the outer two miss each other", """
        a: view 1 a b c | view 2 a b c stayed a b
        b: view 1 a b c | view 2 a b c stayed a b c
        c: view 1 a b c | view 2 a b c stayed b c
    """),
    _doctored("transitional_set", "one that another takes along is in another transition", """
        a: view 1 a b c | transitional 1t a b | view 2 a b c
        b: view 1 a b c | transitional 1t b c | view 2 a b c
        c: view 1 a b c | transitional 1t b c | view 2 a b c
    """),
    _doctored("transitional_set", "two that came along together, each without the other", """
        a: view 1 a b | view 2 a b stayed a
        b: view 1 a b | view 2 a b stayed b
    """),
    _doctored("transitional_set", "a stranger in the transitional set", """
        a: view 1 a b | view 2 a b c stayed a b c
        b: view 1 a b | view 2 a b c stayed a b
        c: view 2 a b c stayed c
    """),
    _doctored("transitional_set", "a transitional set without oneself", """
        a: view 1 a b | view 2 a b stayed b
        b: view 1 a b | view 2 a b stayed a b
    """),
    _doctored("transitional_set", "one side alone records a transitional set", """
        a: view 1 a b | view 2 a b stayed a b
        b: view 1 a b | view 2 a b
    """),
    _doctored("transitional_set", "one that comes from elsewhere records none", """
        a: view 1 a b | view 3 a b c stayed a b
        b: view 1 a b | view 3 a b c stayed a b
        c: view 2 c | view 3 a b c
    """),
    _doctored("one_primary", "two halves go on", """
        a: view 1 a b c d | view 2 a b
        b: view 1 a b c d | view 2 a b
        c: view 1 a b c d | view 3 c d
        d: view 1 a b c d | view 3 c d
    """),
    _doctored("one_primary", "a minority goes on and comes back", """
        a: view 1 a b c | view 2 a b | view 4 a b c
        b: view 1 a b c | view 2 a b | view 4 a b c
        c: view 1 a b c | view 3 c | view 4 a b c
    """),
    _doctored("one_primary", "a minority goes on until the others exclude it", """
        a: join 2 | view 1 a b c founded | view 2 a | stop excluded by view 3
        b: join 2 | view 1 a b c founded | view 3 b c
        c: join 2 | view 1 a b c founded | view 3 b c
    """),
    _doctored("one_primary", "two go on until others exclude them, who showed nothing", """
        a: join 2 | view 1 a b c d founded | view 2 a d | stop excluded by view 3
        b: join 2 | view 1 a b c d founded | crash
        c: join 2 | view 1 a b c d founded | crash
        d: join 2 | view 1 a b c d founded | view 2 a d
        e: join 2 | view 3 b c e
    """),
    _doctored("one_primary", "one goes on with a newcomer and shows nothing, as two others do", """
        a: join 1 | view 1 a at 0 founded | view 2 a b c at 0 | view 3 a b at 0
        b: join 1 | view 2 a b c at 0 | view 3 a b at 0
        c: join 1 | view 2 a b c at 0 | crash
        d: join 1 | view 4 c d at 0
    """),
    _doctored("one_primary", "two go on apart from the two that founded their group", """
        a: join 1 | view 1 a b joined a b founded at 0
        b: join 1 | view 1 a b joined a b founded at 0
        c: join 1 | stop excluded by view 1 founded 1
        d: join 1 | view 3 c d joined c d at 0 of 1 | stop excluded by view 1 founded 1
    """),
    _doctored("one_primary", "one excludes another from the group that a third founded", """
        a: join 1 | stop excluded by view 3 founded 1
        b: join 1 | view 2 a b joined a b | view 3 b left a
        c: join 1 | view 1 c founded joined c | crash
    """),
    _doctored("one_primary", "two go on, and list one of three that were the group", """
        a: join 1 | view 1 a c d founded joined a c d | crash
        b: join 1 | view 2 a b joined a b | view 3 b e joined e left a
        c: join 1 | view 1 a c d founded joined a c d | crash
        d: join 1 | view 1 a c d founded joined a c d | crash
        e: join 1 | view 3 b e joined b e
    """),
    _doctored("one_primary", "two go on without a newcomer, and it goes on without them", """
        a: join 1 | view 1 a b at 0 founded joined a b | view 3 a b at 2 | crash
        b: join 1 | view 1 a b at 0 founded joined a b | view 3 a b at 2 | crash
        c: join 1 | view 2 a b c at 0 joined a b c | view 4 c d at 0
        d: join 1 | view 4 c d at 0 joined c d
    """),
    _doctored("one_primary", "two parts of a group go on, whose founding is only told", """
        a: join 1 | stop by view 2 founded 1
        b: join 1 | view 2 b c joined b c | view 3 b left c
        c: join 1 | view 2 b c joined b c | view 4 c left b
        d: join 1 | view 5 d founded joined d | crash
    """),
    _doctored("one_primary", "one founds alone, and then joins those that had gone on", """
        b: join 1 | view 2 b c joined b c | view 3 b c#2 e joined c#2 e left c | view 4 b e
        c: join 1 | view 2 b c joined b c | crash
        c#2: join 1 | view 1 c#2 founded joined c#2 | crash
        e: join 1 | view 3 b c#2 e joined b c#2 e | view 4 b e
    """),
    _doctored("one_primary", "one left with a view to which the others never agreed", """
        a: join 2 | view 1 a b c founded | left view 2
        b: join 2 | view 1 a b c founded
        c: join 2 | view 1 a b c founded
        d: join 2 | view 2 d
    """),
    _doctored("one_primary", "one of two left with a view, and the other is there in the end", """
        a: join 1 | view 1 a b founded | left view 2
        b: join 1 | view 1 a b founded
        c: join 1 | view 2 c
    """),
    _doctored("one_primary", "one left with a view, and the others with another", """
        a: join 1 | view 1 a b c founded | left view 2
        b: join 1 | view 1 a b c founded | view 3 b c left a | left
        c: join 1 | view 1 a b c founded | view 3 b c left a | left
        d: join 1 | view 2 d
    """),
    _doctored("one_founding", "founded anew while one that remembers is there", """
        a: join 2 | view 1 a b c founded | send | a:1@1 | stop began anew
        b: join 2 | view 1 a b c founded | a:1@1 | crash
        c: join 2 | view 1 a b c founded | a:1@1 | crash
        b#2: restart | join 2 | view 9 b#2 c#2 founded | send | b#2:1@1
        c#2: restart | join 2 | view 9 b#2 c#2 founded | b#2:1@1
    """, "safe"),
    _doctored("one_founding", "founded anew while one is left", """
        a: join 2 | view 1 a b c founded | send | a:1@1
        b: join 2 | view 1 a b c founded | a:1@1 | crash
        c: join 2 | view 1 a b c founded | a:1@1 | crash
        b#2: restart | join 2 | view 9 b#2 c#2 founded | send | b#2:1@1
        c#2: restart | join 2 | view 9 b#2 c#2 founded | b#2:1@1
    """, "safe"),
    _doctored("exclusion", "one is left out where nothing ailed anybody", """
        a: fault none | view 1 a b c | view 2 a b
        b: view 1 a b c | view 2 a b
        c: view 1 a b c | send | c:1 | stop excluded by a
    """, "unreliable"),
    _doctored("exclusion", "one stops as excluded, long after all faults", """
        a: fault paused of c until 1000 | view 1 a b c
        b: view 1 a b c
        c: view 1 a b c | wait 9000000 | view 2 a b c | stop excluded by a
    """),
    _doctored("exclusion", "one is left out before anything ails anybody", """
        a: view 1 a b | view 2 a | wait 2000 | fault isolated of a b until 9000
        b: view 1 a b | wait 9000 | crash
    """),
    _doctored("accuracy", "one is left out for nothing", """
        a: fault none | view 1 a b c | view 2 a b
        b: fault none | view 1 a b c | view 2 a b
        c: fault none | view 1 a b c | stop excluded by a
    """),
    _doctored("accuracy", "one that lives is left out while another crashes", """
        a: view 1 a b c | fault paused | crash
        b: view 1 a b c | view 2 b
        c: view 1 a b c | view 3 c
    """),
    _doctored("accuracy", "all others are left out at once", """
        a: fault none | view 1 a b c | view 2 a
        b: view 1 a b c | stop excluded
        c: view 1 a b c | stop excluded
    """),
    _doctored("accuracy", "left out before the other was ailing", """
        a: view 1 a b | view 2 a | fault paused
        b: view 1 a b | stop excluded
    """),
    _doctored("accuracy", "stopped as excluded though nobody went on", """
        a: fault none | view 1 a b | stop excluded
        b: view 1 a b | crash
    """),
    _doctored("one_founding", "founded anew by newcomers while both elders remember", """
        a: join 2 | view 1 a b c founded | stop excluded
        b: join 2 | view 1 a b c founded | stop excluded
        c: join 2 | view 1 a b c founded | crash
        c#2: restart | join 2 | view 7 c#2 d founded
        d: join 2 | view 7 c#2 d founded
    """),
    _doctored("one_founding", "an elder is left behind a view ago", """
        a: join 2 | view 1 a b c founded | view 2 a b | stop excluded
        b: join 2 | view 1 a b c founded | view 2 a b | crash
        c: join 2 | view 1 a b c founded | stop excluded
        b#2: restart | join 2 | view 7 b#2 c#2 founded
        c#2: restart | join 2 | view 7 b#2 c#2 founded
    """),
    _doctored("one_founding", "founded anew beside a part that was let go on", """
        a: join 1 | view 1 a b c founded
        b: join 1 | view 1 a b c founded | view 2 b parted | crash
        c: join 1 | view 1 a b c founded | crash
        b#2: restart | join 1 | view 7 b#2 c#2 founded
        c#2: restart | join 1 | view 7 b#2 c#2 founded
    """, "cut safe"),
    _doctored("one_founding", "one is excluded by its own view, as it says", """
        a: join 2 | view 1 a b c founded | stop excluded by view 1
        b: join 2 | view 1 a b c founded | crash
        c: join 2 | view 1 a b c founded | crash
        b#2: restart | join 2 | view 7 b#2 c#2 founded | view 8 b#2 c#2
        c#2: restart | join 2 | view 7 b#2 c#2 founded | view 8 b#2 c#2
    """),
    _doctored("one_founding", "one is excluded by the group that was founded anew", """
        a: join 2 | view 1 a b c founded | stop excluded by view 8
        b: join 2 | view 1 a b c founded | crash
        c: join 2 | view 1 a b c founded | crash
        b#2: restart | join 2 | view 7 b#2 c#2 founded | view 8 b#2 c#2
        c#2: restart | join 2 | view 7 b#2 c#2 founded | view 8 b#2 c#2
    """),
    _doctored("one_founding", "one is excluded by a view that nobody installed", """
        a: join 2 | view 1 a b c founded | stop excluded by view 2
        b: join 2 | view 1 a b c founded | crash
        c: join 2 | view 1 a b c founded | crash
        b#2: restart | join 2 | view 7 b#2 c#2 founded
        c#2: restart | join 2 | view 7 b#2 c#2 founded
    """),
    _doctored("one_founding", "one is excluded by a view that nobody installed, of a new group", """
        a: join 2 | view 1 a b c founded | stop excluded by view 8 founded 7
        b: join 2 | view 1 a b c founded | crash
        c: join 2 | view 1 a b c founded | crash
        b#2: restart | join 2 | view 7 b#2 c#2 founded
        c#2: restart | join 2 | view 7 b#2 c#2 founded
    """),
    _doctored("one_founding", "one is excluded by a view of an unknown founding", """
        a: join 2 | view 1 a b c founded | stop excluded by view 8 founded 5
        b: join 2 | view 1 a b c founded | crash
        c: join 2 | view 1 a b c founded | crash
        b#2: restart | join 2 | view 7 b#2 c#2 founded
        c#2: restart | join 2 | view 7 b#2 c#2 founded
    """),
    _doctored("one_founding", "one is excluded by processes without a view", """
        a: join 2 | view 1 a b c founded | stop excluded by view 0 founded 0
        b: join 2 | view 1 a b c founded | crash
        c: join 2 | view 1 a b c founded | crash
        b#2: restart | join 2 | view 7 b#2 c#2 founded
        c#2: restart | join 2 | view 7 b#2 c#2 founded
    """),
    _doctored("one_founding", "one is excluded by a view for which there are too few others", """
        a: join 2 | view 1 a b founded | stop excluded by view 2 founded 1
        b: join 2 | view 1 a b founded | crash
        b#2: restart | join 1 | view 7 b#2 founded
    """),
    _doctored("one_founding", "one is excluded, another of its view is left", """
        a: join 2 | view 1 a b c founded
        b: join 2 | view 1 a b c founded | crash
        c: join 2 | view 1 a b c founded | stop excluded by view 2
        b#2: restart | join 2 | view 7 b#2 c#2 founded
        c#2: restart | join 2 | view 7 b#2 c#2 founded
    """),
    _doctored("one_founding", "one is left, the clocks of those that founded anew set back", """
        a: fault none | join 2 | view 1 a b#2 c#2 founded
        b#2: join 2 | view 1 a b#2 c#2 founded | crash
        c#2: join 2 | view 1 a b#2 c#2 founded | crash
        b: wait 90000 | restart | join 2 | view 7 b c founded
        c: wait 90000 | restart | join 2 | view 7 b c founded
    """),
    _doctored("one_founding", "both groups go on", """
        a: join 2 | view 1 a b founded | view 2 a
        b: join 2 | view 1 a b founded | crash
        b#2: restart | join 2 | view 7 b#2 founded
    """),
    _doctored("transitional_set", "one says that another came along, who says otherwise", """
        a: view 1 a b | view 2 a b stayed a b
        b: view 1 a b | view 2 a b stayed b
    """),
    _doctored("transitional_set", "one that is gone is said to come along", """
        a: view 1 a b c | view 2 a b stayed a b c
        b: view 1 a b c | view 2 a b stayed a b
        c: view 1 a b c | crash
    """),
    _doctored("received", "two of a safe sender's messages, of which one has the first", """
        a: view 1 a b c | send | send | a:1 | a:2 | holds a:2 | view 2 a b c
        b: view 1 a b c | a:1 | a:2 | holds a:2 | view 2 a b c
        c: view 1 a b c | a:1 | holds a:1 | view 2 a b c | crash
    """, "safe"),
    _doctored("received", "received a view too late", """
        a: view 1 a b | send | a:1 | holds a:1 | view 2 a b | holds a:1 | left
        b: view 1 a b | view 2 a b | holds a:1 | crash
    """, "safe"),
    _doctored("stable", "all hold it, but one stops without it", """
        a: view 1 a b | send | a:1 | stable a:1 a b | holds a:1 | view 2 a
        b: view 1 a b | holds b:1 | stop
    """, "resilient(all)"),
    _doctored("agreement", "a leaver lacks what was ordered before its leave", """
        a: view 1 a b c at 0 | send | a:1@1 | view 2 a b at 1
        b: view 1 a b c at 0 | a:1@1 | view 2 a b at 1
        c: view 1 a b c at 0 | left
    """, "agreed"),
    _doctored("agreement", "outside the order, and one that stays lacks it", """
        a: view 1 a b c at 0 | send reliable | a:1 | view 2 a b at 0
        b: view 1 a b c at 0 | view 2 a b at 0
        c: view 1 a b c at 0 | left
    """),
    _doctored("agreement", "an ordered message without a place, and a leaver lacks it", """
        a: view 1 a b c at 0 | send | a:1 | view 2 a b at 1
        b: view 1 a b c at 0 | a:1 | view 2 a b at 1
        c: view 1 a b c at 0 | left
    """, "agreed"),
    _doctored("same_view", "an ordered message without a place, on either side of a view", """
        a: view 1 a b at 0 | send | a:1 | view 2 a b at 1
        b: view 1 a b at 0 | view 2 a b at 1 | a:1
    """, "agreed"),
    _doctored("virtual_synchrony", "an ordered message without a place, after the next view", """
        a: view 1 a b at 0 | send | a:1 | view 2 a b at 1
        b: view 1 a b at 0 | view 2 a b at 1 | a:1
    """, "resilient(2)"),
    _doctored("stable", "a joiner does not stand for one that was there", """
        a: view 1 a b | send | a:1 | view 2 a b c | stable a:1 a
        b: view 1 a b | a:1 | view 2 a b c
        c: view 2 a b c cut a:1
    """, "resilient(all)"),
    _doctored("stable", "a holder that was in no view", """
        a: view 1 a b | send | a:1 | stable a:1 a z
        b: view 1 a b | a:1
    """, "resilient(2)"),
    _doctored("stable", "a message that nobody sent", """
        a: view 1 a b | stable b:7 a b | crash
        b: view 1 a b | crash
    """, "resilient(2)"),
    _doctored("stable", "two of three are not all", """
        a: view 1 a b c | send | a:1
        b: view 1 a b c | a:1 | stable a:1 a b
        c: view 1 a b c | a:1
    """, "resilient(all)"),
    _doctored("received", "safe for one that had not received it", """
        a: view 1 a b | send | a:1 | holds a:1 | view 2 a b
        b: view 1 a b | holds b:3 | view 2 a b | stop
    """, "safe"),
    _doctored("received", "safe at a majority, and the third dies before it hears of it", """
        a: view 1 a b c | send | a:1 | crash
        b: view 1 a b c | a:1 | holds a:1 | view 2 b c | view 3 b
        c: view 1 a b c | view 2 b c | crash
    """, "safe"),
    _doctored("received", "not held by one of the transitional view", """
        a: view 1 a b c | transitional 1t a b | send | a:1 | holds a:1 | view 2 a b
        b: view 1 a b c | transitional 1t a b | holds c:9 | view 2 a b | crash
        c: view 1 a b c | crash
    """, "safe"),
    _doctored("stable", "a holder that does not hold it", """
        a: view 1 a b c | send | a:1 | stable a:1 a b | holds a:1 | left
        b: view 1 a b c | holds c:2 | crash
        c: view 1 a b c | a:1 | view 2 c
    """, "resilient(2)"),
    _doctored("stable", "fewer hold it than was asked for", """
        a: view 1 a b c | send | a:1 | stable a:1 a
        b: view 1 a b c | a:1
        c: view 1 a b c | a:1
    """, "resilient(majority)"),
    _doctored("stable", "no survivor honours it", """
        a: view 1 a b c | send | a:1 | stable a:1 a b c | crash
        b: view 1 a b c | view 2 b c
        c: view 1 a b c | view 2 b c
    """, "resilient(all)"),
    _doctored("progress", "the world waited in vain", """
        a: view 1 a b | stuck
        b: view 1 a b
    """),
    _doctored("progress", "one that left is in the others' view for ever", """
        a: view 1 a b c | send | a:1 | c:1 | wait 70000000 | send | a:2 | send | a:3
        b: view 1 a b c | a:1 | c:1 | wait 70000000 | a:2 | a:3
        c: view 1 a b c | a:1 | send | c:1 | left
    """),
    _doctored("progress", "by clocks that are hours apart, too", """
        a: wait 9000000000 | view 1 a b | send | a:1 | b:1 | wait 70000000 | send | a:2
        b: view 1 a b | a:1 | send | b:1 | left
    """),
    _doctored("progress", "one that left had said nothing, and is in the others' view for ever", """
        a: view 1 a b c | wait 70000000 | send | a:1
        b: view 1 a b c | wait 70000000 | a:1
        c: join | view 1 a b c | left
    """),
    _doctored("progress", "all that had not left were excluded", """
        a: view 1 a b c | left
        b: view 1 a b c | view 2 b c | stop excluded
        c: view 1 a b c | view 2 b c | stop excluded
    """),
    _doctored("safe", "delivered as safe by one that then crashed", """
        a: view 1 a b c | send safe | a:1 | crash
        b: view 1 a b c | view 2 b c
        c: view 1 a b c | view 2 b c
    """),
    _doctored("safe", "one that was let go on had received it", """
        a: view 1 a b c founded | send | a:1 | holds a:1 | view 2 a c
        b: view 1 a b c founded | holds a:1 | view 3 b parted | left
        c: view 1 a b c founded | a:1 | holds a:1 | view 2 a c
    """, "safe"),
    _doctored("safe", "one was let go on a view later", """
        a: view 1 a b founded | send | a:1 | holds a:1 | view 2 a b | view 3 a c
        b: view 1 a b founded | view 2 a b | view 4 b parted | left
        c: view 3 a c cut a:1
    """, "safe"),
    _doctored("safe", "one was let go on, and the others did not go on without it", """
        a: view 1 a b founded | send | a:1 | holds a:1 | left
        b: view 1 a b founded | view 2 b parted
    """, "safe"),
    _doctored("safe", "one goes on elsewhere without it, and then crashes", """
        a: view 1 a b c | send | a:1 | view 2 a b
        b: view 1 a b c | a:1 | view 2 a b
        c: view 1 a b c | view 3 c | send | c:1 | crash
    """, "safe"),
    _doctored("safe", "one leaves a transitional view for another component, and then crashes", """
        a: view 1 a b | send | transitional 1t a b | a:1 | crash
        b: view 1 a b | transitional 1t a b | view 2 b | crash
    """, "safe"),
    _doctored("safe", "one was let go on before it had the view, and had received it", """
        a: view 1 a b c founded | view 2 a b c | send | a:1 | holds a:1 | view 3 a c
        b: view 1 a b c founded | holds a:1 | view 4 b parted | left
        c: view 1 a b c founded | view 2 a b c | a:1 | holds a:1 | view 3 a c
    """, "safe"),
    _doctored("safe", "safe for some", """
        a: view 1 a b | send | a:1
        b: view 1 a b
    """, "safe"),
    _doctored("safe", "a leaver takes a safe message's promise with it", """
        a: view 1 a b | send | a:1 | view 2 a
        b: view 1 a b | left
    """, "safe"),
    _doctored("progress", "a probe that one does not deliver", """
        a: view 1 a b | send probe | a:1
        b: view 1 a b
    """),
    _doctored("progress", "one stays outside", """
        a: view 1 a | send probe | a:1
        b: join
    """),
    _doctored("progress", "all have stopped", """
        a: view 1 a b | send | a:1 | stop suspected
        b: view 1 a b | crash
    """),
    _doctored("progress", "a probe across a split that stayed", """
        a: view 1 a b | view 2 a | send probe | a:1
        b: view 1 a b | view 3 b | send probe | b:1
    """),
    _doctored("one_primary", "two foundings side by side that share no node", """
        a: join 2 | view 1 a b at 0 founded | send | a:1@1 | b:1@2
        b: join 2 | view 1 a b at 0 founded | a:1@1 | send | b:1@2
        c: join 2 | view 2 c d e at 0 founded | send | c:1@1
        d: join 2 | view 2 c d e at 0 founded | c:1@1
        e: join 2 | view 2 c d e at 0 founded | c:1@1
    """, "safe"),
    _doctored("one_primary", "two masters, each with a group of its own", """
        a: join 1 | view 1 a at 0 founded | view 2 a b at 1 | send | a:1@2
        b: join 1 | view 2 a b cut a:0 at 1 | a:1@2
        c: join 1 | view 7 c at 0 founded | send | c:1@1
        d: join 1 | stop | crash
    """, "agreed"),
    _doctored("one_component", "two primary components at a time", """
        a: view 1 a b c d also primary:1: | view 2 a b also primary:2:
        b: view 1 a b c d also primary:1: | view 2 a b also primary:2:
        c: view 1 a b c d also primary:1: | view 3 c d also primary:3:
        d: view 1 a b c d also primary:1: | view 3 c d also primary:3:
    """),
    _doctored("one_component", "two primary components with one number", """
        a: view 1 a b c also primary:1: | view 2 a b also primary:2: | view 3 b a
        b: view 1 a b c also primary:1: | view 2 a b also primary:2: | view 3 b a
        c: view 1 a b c also primary:1: | view 4 b c also primary:2:
    """),
    _doctored("one_component", "two majorities that share nobody", """
        a: view 1 a b also primary: | view 3 a also secondary:
        b: view 1 a b also primary:
        c: view 2 c d also primary:
        d: view 2 c d also primary:
    """),
    _doctored("quorum", "a minority goes on and the others stop", """
        a: join 2 | view 1 a b c at 0 founded | view 2 a at 0 | send | a:1@1
        b: join 2 | view 1 a b c at 0 founded | stop
        c: join 2 | view 1 a b c at 0 founded | stop
    """, "agreed"),
    _doctored("quorum", "founded by too few", """
        a: join 3 | view 1 a b founded | view 2 a b c
        b: join 3 | view 1 a b founded | view 2 a b c
        c: join 3 | view 2 a b c
    """),
    _doctored("quorum", "too few before one was let go on", """
        a: join 2 | view 1 a b c founded | view 2 a | view 3 a parted
        b: join 2 | view 1 a b c founded | crash
        c: join 2 | view 1 a b c founded | crash
    """),
    _doctored("minimum_size", "fewer are left than one voted for", """
        a: view 1 a b c d founded | view 2 a b c d also size_changed:3:b
        a: view 3 a b also failed:c failed:d
        b: view 1 a b c d founded | view 2 a b c d also size_changed:3:b
        b: view 3 a b also failed:c failed:d
        c: view 1 a b c d founded | crash
        d: view 1 a b c d founded | crash
    """),
    _doctored("minimum_size", "one fails though none may, as one voted that came later", """
        a: view 1 a b founded | view 2 a b also size_changed:none_may_fail:b
        a: view 3 a b c also joined:c | view 4 a c also failed:b
        b: view 1 a b founded | view 2 a b also size_changed:none_may_fail:b
        b: view 3 a b c also joined:c | crash
        c: view 3 a b c also joined:c | view 4 a c also failed:b
    """),
    _doctored("minimum_size", "a joiner goes on alone against a vote from before its time", """
        a: view 1 a b founded | view 2 a b also size_changed:optimistic:a
        a: view 3 a b c also joined:c | crash
        b: view 1 a b founded | view 2 a b also size_changed:optimistic:a
        b: view 3 a b c also joined:c | crash
        c: view 3 a b c also joined:c | view 4 c also failed:a failed:b
    """),
    _doctored("one_lock_holder", "a lock is granted twice", """
        a: view 1 a b founded | view 2 a b also lock_granted:7:a | view 3 a b also lock_granted:7:b
        b: view 1 a b founded | view 2 a b also lock_granted:7:a | view 3 a b also lock_granted:7:b
    """),
    _doctored("one_lock_holder", "the holder is seen as another by one of two", """
        a: view 1 a b founded | view 2 a b also lock_granted:7:a
        b: view 1 a b founded | view 2 a b also lock_granted:7:b
    """),
    _doctored("one_lock_holder", "released by one that does not hold it", """
        a: view 1 a b founded | view 2 a b also lock_granted:7:a | view 3 a b also lock_released:7:b
        b: view 1 a b founded | view 2 a b also lock_granted:7:a | view 3 a b also lock_released:7:b
    """),
    _doctored("one_lock_holder", "the lock of the dead is kept", """
        a: view 1 a b founded | view 2 a b also lock_granted:0:b | view 3 a also failed:b
        b: view 1 a b founded | view 2 a b also lock_granted:0:b | crash
    """),
    _doctored("one_lock_holder", "a joiner was not told of the holder", """
        a: view 1 a b founded | view 2 a b also lock_granted:3:a | view 3 a b c also joined:c
        a: crash
        b: view 1 a b founded | view 2 a b also lock_granted:3:a | view 3 a b c also joined:c
        b: crash
        c: view 3 a b c also joined:c | view 4 a b c also lock_granted:3:c
    """),
    _doctored("begun", "a group that nobody founded", """
        a: join 2 | view 1 a b at 0 | send | a:1@1
        b: join 2 | view 1 a b at 0 | a:1@1
    """, "safe"),
    _doctored("begun", "founded anew by newcomers who do not say so", """
        a: join 2 | view 1 a b at 0 founded | send | a:1@1 | crash
        b: join 2 | view 1 a b at 0 founded | a:1@1 | crash
        c: join 2 | view 5 c d at 0 founded | crash
        d: join 2 | view 5 c d at 0 founded | crash
        e: join 2 | view 9 e f at 0 | send | e:1@1
        f: join 2 | view 9 e f at 0 | e:1@1
    """, "safe"),
    _doctored("one_place", "one of two groups goes on and forgets what was safe", """
        a: view 1 a b at 0 founded | send | a:1@1 | crash
        b: view 1 a b at 0 founded | a:1@1 | crash
        c: view 2 c d at 0 founded | send | c:1@1
        d: view 2 c d at 0 founded | c:1@1
        b#2: restart | view 3 b#2 e at 0 | send | b#2:1@1
        e: view 3 b#2 e at 0 | b#2:1@1
    """, "safe"),
    _doctored("one_place", "a safe message vanishes, and nothing more is said", """
        a: view 1 a b c at 0 founded | view 2 a b at 0 | send | a:1@1 | crash
        b: view 1 a b c at 0 founded | view 2 a b at 0 | a:1@1 | crash
        c: view 1 a b c at 0 founded | view 3 a#2 b#2 c at 0
        a#2: restart | view 3 a#2 b#2 c at 0
        b#2: restart | view 3 a#2 b#2 c at 0
    """, "safe"),
    _doctored("one_place", "an agreed message loses its place to those that go on", """
        a: view 1 a b c at 0 founded | send | a:1@1 | view 2 a c at 0
        b: view 1 a b c at 0 founded | a:1@1 | view 3 b at 1
        c: view 1 a b c at 0 founded | view 2 a c at 0
    """, "agreed"),
    _doctored("one_place", "most went on without an agreed message, and crashed", """
        a: view 1 a b c at 0 founded | send | a:1@1 | left
        b: view 1 a b c at 0 founded | view 2 b c at 0 | crash
        c: view 1 a b c at 0 founded | view 2 b c at 0 | crash
    """, "agreed"),
    _doctored("one_place", "a newcomer goes on where an agreed message is lost", """
        a: view 1 a b c d at 0 founded | send | a:1@1 | left
        b: view 1 a b c d at 0 founded | view 2 b at 0 | view 3 b e at 0 | crash
        e: view 3 b e at 0
    """, "agreed"),
    _doctored("one_place", "two safe messages vanish with the view after them", """
        a: view 1 a b at 4 founded | send | send | a:1@5 | a:2@6 | view 2 a b at 6 | crash
        b: view 1 a b at 4 founded | a:1@5 | a:2@6 | view 2 a b at 6 | crash
        a#2: restart | view 3 a#2 b#2 at 4
        b#2: restart | view 3 a#2 b#2 at 4
    """, "safe"),
    _doctored("uniform_order", "an ordered message vanishes with those who had it", """
        a: view 1 a b at 0 founded | send | a:1@1 | crash
        b: view 1 a b at 0 founded | view 2 a#2 b at 0
        a#2: restart | view 2 a#2 b at 0
    """, "agreed"),
    _doctored("uniform_order", "a view begins before the one that leads to it", """
        a: view 1 a b at 7 founded | view 2 a b at 9 | crash
        b: view 1 a b at 7 founded | crash
        a#2: restart | view 3 a#2 b#2 at 8
        b#2: restart | view 3 a#2 b#2 at 8
    """, "agreed"),
    _doctored("every_place", "places that nobody has before a message", """
        a: view 1 a b at 0 founded | send | a:1@1 | send | a:2@5
        b: view 1 a b at 0 founded | a:1@1 | a:2@5
    """, "agreed"),
    _doctored("every_place", "places that nobody has before a view", """
        a: view 1 a b at 0 founded | send | a:1@1 | view 2 a b at 5 | send | a:2@6
        b: view 1 a b at 0 founded | a:1@1 | view 2 a b at 5 | a:2@6
    """, "safe"),
    _doctored("every_place", "one passes over places, of which nobody has the second", """
        a: view 1 a b at 0 founded | send | send | send | a:1@1 | a:2@2 | a:3@4 | crash
        b: view 1 a b at 0 founded | a:1@1 | a:3@4
    """, "agreed"),
    _doctored("received", "all crash, and only one had the safe message", """
        a: view 1 a b c founded | send | a:1@1 | holds a:1 | crash
        b: view 1 a b c founded | holds b:1 | crash
        c: view 1 a b c founded | holds b:1 | crash
    """, "safe"),
    _doctored("received", "all crash one after the other, and one never had what was safe", """
        a: view 1 a b c | view 2 a b c | send | send | a:1 | a:2 | holds a:2 | crash
        b: view 1 a b c | view 2 a b c | a:1 | a:2 | holds a:2 | crash
        c: view 1 a b c | view 2 a b c | a:1 | holds a:1 | crash
    """, "safe"),
    _doctored("receipts", "one holds what was never sent", """
        a: view 1 a b | send | a:1 | holds a:1 | view 2 a
        b: view 1 a b | holds a:9 | crash
    """),
    _doctored("receipts", "one holds words of one that said nothing", """
        a: view 1 a b | view 2 a b
        b: view 1 a b | holds a:1 | view 2 a b
    """),
    _doctored("receipts", "one has delivered what it does not hold", """
        a: view 1 a b | send | send | a:1 | a:2 | holds a:2 | view 2 a b
        b: view 1 a b | a:1 | a:2 | holds a:1 | view 2 a b
    """),
    _doctored("receipts", "at its end one has delivered what it does not hold", """
        a: view 1 a b | send | a:1 | view 2 a b | send | a:2
        b: view 1 a b | a:1 | holds a:1 | view 2 a b | a:2 | holds a:1 | crash
    """),
]

SOUND: list[Sound] = [
    _sound("a lock is passed on, and the dead release theirs", """
        a: view 1 a b founded | view 2 a b also lock_granted:7:a | view 3 a b c also joined:c
        a: view 4 a b c also lock_released:7:a lock_granted:7:b
        a: view 5 a c also failed:b lock_released:7:b lock_granted:7:c
        b: view 1 a b founded | view 2 a b also lock_granted:7:a | view 3 a b c also joined:c
        b: view 4 a b c also lock_released:7:a lock_granted:7:b | crash
        c: view 3 a b c also joined:c | view 4 a b c also lock_released:7:a lock_granted:7:b
        c: view 5 a c also failed:b lock_released:7:b lock_granted:7:c
    """),
    _sound("votes are kept, withdrawn, and forgotten with the voter", """
        a: view 1 a b c d founded | view 2 a b c d also size_changed:3:d
        a: view 3 a b c also failed:d | view 4 a b c also size_changed:3:a
        a: view 5 a b c also size_changed:1:a | view 6 a also failed:b failed:c
        b: view 1 a b c d founded | view 2 a b c d also size_changed:3:d
        b: view 3 a b c also failed:d | crash
        c: view 1 a b c d founded | view 2 a b c d also size_changed:3:d
        c: view 3 a b c also failed:d | crash
        d: view 1 a b c d founded | crash
    """),
    _sound("members leave below the minimum, which only binds failures", """
        a: view 1 a b c founded | view 2 a b c also size_changed:3:a | view 3 a b also left:c
        b: view 1 a b c founded | view 2 a b c also size_changed:3:a | view 3 a b also left:c
        c: view 1 a b c founded | view 2 a b c also size_changed:3:a | left
    """),
    _sound("all leave with the view of a newcomer", """
        a: join 1 | view 1 a b c founded | view 2 a b left c | left view 3
        b: join 1 | view 1 a b c founded | view 2 a b left c | left view 3
        c: join 1 | view 1 a b c founded | crash
        d: join 1 | view 3 d joined d
    """),
    _sound("most leave with the view of a newcomer, and one of them crashes before it can", """
        a: join 1 | view 1 a b c founded | left view 2
        b: join 1 | view 1 a b c founded | crash
        c: join 1 | view 1 a b c founded | stop by view 2
        d: join 1 | view 2 d joined d
    """),
    _sound("one founds alone, and the founding of the others is only told", """
        a: join 1 | stop by view 3 founded 1
        b: join 1 | view 2 a b joined a b | crash
        b#2: join 1 | view 3 b#2 d joined b#2 d | view 5 b#2 c#2 d joined c#2
        c: join 1 | view 4 c founded joined c | crash
        c#2: join 1 | view 5 b#2 c#2 d joined b#2 c#2 d
        d: join 1 | view 3 b#2 d joined b#2 d | view 5 b#2 c#2 d joined c#2
    """),
    _sound("the others have not heard yet that one left", """
        a: wait 9000000000 | view 1 a b | send | a:1 | b:1 | wait 40000000 | send | a:2
        b: view 1 a b | a:1 | send | b:1 | left
    """),
    _sound("all leave at once, after a long silence", """
        a: view 1 a b | send | a:1 | b:1 | wait 70000000 | left
        b: view 1 a b | a:1 | send | b:1 | wait 70000000 | left
    """),
    _sound("one is in the view for minutes before it leaves", """
        a: view 1 a b | wait 70000000 | send | a:1 | b:1 | view 2 a | send | a:2
        b: view 1 a b | wait 70000000 | a:1 | send | b:1 | left
    """),
    _sound("one goes on from a founding that only others were told of", """
        a: join 2 | view 1 a b c at 0 founded | crash
        b: join 2 | view 2 a#2 b at 0 founded | send | b:1@1 | view 3 a#2 b c#2 at 1
        c: join 2 | view 1 a b c at 0 founded | stop
        a#2: join 2 | view 2 a#2 b at 0 founded | b:1@1 | view 3 a#2 b c#2 at 1
        c#2: join 2 | view 3 a#2 b c#2 at 1 cut b:1
    """, "safe"),
    _sound("a group that is gone, and another elsewhere", """
        a: join 1 | view 1 a at 0 founded | crash
        b: join 1 | view 2 b at 0 founded | send | b:1@1
    """, "safe"),
    _sound("any part may go on, and two do", """
        a: join | view 1 a at 0 founded | send | a:1@1
        b: join | view 2 b at 0 founded | send | b:1@1
    """, "safe"),
    _sound("let go on, a part is smaller than a majority", """
        a: join 2 | view 1 a b c founded at 0 | view 2 a parted at 0 | view 3 a b#2 at 0
        b: join 2 | view 1 a b c founded at 0 | crash
        c: join 2 | view 1 a b c founded at 0 | crash
        b#2: join 2 | view 3 a b#2 at 0 | view 4 b#2 at 0
    """, "safe"),
    _sound("all come back with their records, and go on where they were", """
        a: join 2 | view 1 a b at 0 founded | send | a:1@1 | crash
        b: join 2 | view 1 a b at 0 founded | a:1@1 | crash
        c: join 2 | view 5 c d founded | crash
        d: join 2 | view 5 c d founded | crash
        a#2: restart | join 2 | view 9 a#2 b#2 at 1 | send | a#2:1@2
        b#2: restart | join 2 | view 9 a#2 b#2 at 1 | a#2:1@2
    """, "safe"),
    _sound("what is left of a view is delivered in the step in which all die", """
        a: view 1 a b c | send | a:1 | crash now
        b: view 1 a b c | holds c:1 | crash
        c: view 1 a b c | send | holds c:1 | crash
    """, "safe"),
    _sound("one is let into a group that was founded anew, by those who crash before they tell", """
        a: join 2 | view 1 a b c founded | send | a:1@1 | crash
        b: join 2 | view 1 a b c founded | a:1@1 | crash
        c: join 2 | view 1 a b c founded | a:1@1 | crash
        a#2: restart | join 2 | view 7 a#2 b#2 founded | crash
        b#2: restart | join 2 | view 7 a#2 b#2 founded | crash
        c#2: restart | join 2 | view 8 a#2 b#2 c#2 at 0
    """, "safe"),
    _sound("founded anew by a node whose clock was set back, and one that never told", """
        a#2: join 2 | view 1 a#2 b founded | crash
        b: join 2 | crash
        a: restart | join 2 | view 7 a b#2 founded
        b#2: restart | join 2 | view 7 a b#2 founded
    """),
    _sound("one was let go on twice, and another joined it in between", """
        a: join 2 | view 1 a b c founded | view 2 a parted | view 3 a d | view 4 a parted
        b: join 2 | view 1 a b c founded | crash
        c: join 2 | view 1 a b c founded | crash
        d: join 3 | view 3 a d | crash
    """),
    _sound("both clocks were set back, as the times of the one clock show", """
        a#2: fault setback | join 2 | view 1 a#2 c#2 founded | crash
        c#2: join 2 | view 1 a#2 c#2 founded | crash
        a: wait 90000 | restart | join 2 | view 7 a b c founded
        b: wait 90000 | join 2 | view 7 a b c founded
        c: wait 90000 | restart | join 2 | view 7 a b c founded
    """),
    _sound("a clock was set back, and views seem to lead both ways", """
        a#3: view 1 a#3 b at 0 founded | send | a#3:1@1 | view 2 a#3 b at 1 | crash
        b: view 1 a#3 b at 0 founded | a#3:1@1 | view 2 a#3 b at 1 | send | b:1@2
        b: view 3 a#1 b at 2
        a#1: restart | view 3 a#1 b cut b:1 at 2
    """, "safe"),
    _sound("a founder is left behind by two that crash before they show it", """
        a: join 1 | view 1 a at 0 founded | view 2 a b c at 0
        b: join 1 | view 2 a b c at 0 | crash
        c: join 1 | view 2 a b c at 0 | crash
        d: join 1 | view 4 b c d at 0
    """),
    _sound("of two groups that were founded one gives way, and never showed its founding", """
        a: join 1 | view 1 a b joined a b founded at 0
        b: join 1 | view 1 a b joined a b founded at 0
        c: join 1 | stop excluded by view 1 founded 1
        d: join 1 | view 3 c d joined c d at 0 of 2 | stop excluded by view 1 founded 1
    """),
    _sound("one founds alone beside a group whose founding nobody showed, and joins that", """
        a: join 1 | stop excluded by view 3 founded 1
        b: join 1 | view 2 a b joined a b | view 3 b left a | view 5 b c#2 joined c#2
        c: join 1 | view 4 c founded joined c | crash
        c#2: join 1 | view 5 b c#2 joined b c#2
    """),
    _sound("all crash or stop before they show whom they admitted", """
        a: join 1 | view 2 a c joined a c | stop memory lost
        b: join 1 | view 3 a b c joined a b c | view 4 a b left c | view 5 b left a
        c: join 1 | view 1 c founded joined c | view 2 a c joined a | crash
    """),
    _sound("a founder crashes before it shows whom it admitted", """
        a: join 1 | view 1 a founded joined a | crash
        b: join 1 | view 2 a b joined a b | view 3 b
    """),
    _sound("nothing at all", ""),
    _sound("two talk", """
        a: join | view 1 a b | send | a:1 | b:1
        b: join | view 1 a b | a:1 | send | b:1
    """),
    _sound("concurrent messages need no order", """
        a: view 1 a b | send | a:1 | b:1
        b: view 1 a b | send | b:1 | a:1
    """),
    _sound("an ordered group", """
        a: view 1 a b c | send | send | b:1@1 | a:1@2 | a:2@3
        b: view 1 a b c | send | b:1@1 | a:1@2 | a:2@3
        c: view 1 a b c | b:1@1 | a:1@2 | a:2@3
    """, "safe"),
    _sound("a group founded anew counts from the beginning", """
        a: view 1 a b founded | send | a:1@1 | crash
        b: view 1 a b founded | a:1@1 | crash
        a#2: restart | view 5 a#2 b#2 founded | send | send | a#2:1@1 | a#2:2@2
        b#2: restart | view 5 a#2 b#2 founded | a#2:1@1 | a#2:2@2
    """, "safe"),
    _sound("two part, go on speaking and merge as the same lives", """
        a: view 1 a b | send | a:1 | view 2 a | send | send | a:2 | a:3
        b: view 1 a b | a:1 | view 3 b | send | b:1
        a: view 4 a b cut b:1 stayed a | send | b:2 | a:4
        b: view 4 a b cut a:3 stayed b | send | b:2 | a:4
    """, but="prefix one_primary"),
    _sound("the primary component follows those that are left, and one formed it alone", """
        a: view 1 a b c also primary:1: | view 2 a b also secondary: | view 3 a b also primary:2:
        b: view 1 a b c also primary:1: | view 2 a b also secondary: | view 5 b c also primary:3:
        c: view 1 a b c also primary:1: | view 4 c also secondary: | view 5 b c also primary:3:
        c: view 6 c also secondary: | view 7 c also primary:5:
    """, but="one_primary"),
    _sound("two pairs part, speak and merge, and one of a pair has crashed", """
        a: view 1 a b c d | send | a:1 | view 2 a b | send | a:2 | b:1
        b: view 1 a b c d | a:1 | view 2 a b | a:2 | send | b:1 | crash
        c: view 1 a b c d | a:1 | view 3 c d | send | c:1 | d:1
        d: view 1 a b c d | a:1 | view 3 c d | c:1 | send | d:1
        a: view 4 a | view 5 a c d cut c:1 d:1 | c:2 | send | a:3
        c: view 5 a c d cut a:2 | send | c:2 | a:3
        d: view 5 a c d cut a:2 | c:2 | a:3
    """, but="prefix one_primary"),
    _sound("what a component said before it met another, by one that both knew and lost", """
        a: view 1 a c | view 2 a stayed a | view 4 a b stayed a
        b: view 3 b c | c:1 | view 4 a b stayed b
        c: view 1 a c | view 3 b c stayed c | send | c:1 | crash
    """, but="prefix one_primary"),
    _sound("one returns that knows what one that is gone said, to one that never left", """
        a: view 1 a b c | view 3 a b stayed a | b:1
        b: view 1 a b c | view 2 b c stayed b c | c:1 | send | view 3 a b stayed b | b:1
        c: view 1 a b c | view 2 b c stayed b c | send | c:1 | crash
    """, but="prefix one_primary sending_view"),
    _sound("one was let go on before it had the view in which the others deliver", """
        a: view 1 a b founded | view 2 a b c | send | a:1 | holds a:1 | view 3 a c
        b: view 1 a b founded | view 4 b parted | left
        c: view 2 a b c | a:1 | holds a:1 | view 3 a c
    """, "safe"),
    _sound("two parts of one view in transitional views of one name", """
        a: view 1 a b c | transitional 1t a b | view 2 a b stayed a b
        b: view 1 a b c | transitional 1t a b | view 2 a b stayed a b
        c: view 1 a b c | transitional 1t c | view 3 c stayed c
    """, "agreed", but="one_primary quorum"),
    _sound("one saw a newcomer that was shown no view before they had parted, and both merge", """
        a: view 1 a c | view 2 a b c stayed a c | view 3 a stayed a
        b: view 4 b c | c:1 | view 5 b stayed b | view 6 a b stayed b
        c: view 1 a c | view 2 a b c stayed a c | view 4 b c stayed c | send | c:1 | left
        a: view 6 a b stayed a
    """, but="prefix one_primary"),
    _sound("who leaves delivers with those that come along, and one that parted leaves too", """
        a: view 1 a b c | send | transitional 1t a b stayed a b | a:1 | left
        b: view 1 a b c | transitional 1t a b stayed a b | a:1 | view 2 b stayed b
        c: view 1 a b c | view 3 c stayed c | left
    """, but="prefix one_primary"),
    _sound("each was in a view of the other that it was not shown itself", """
        a: view 1 a b | view 2 a stayed a
        b: view 3 b | send | b:1 | view 4 a b stayed b | left
    """, but="prefix one_primary"),
    _sound("parted in a view that one of them never left", """
        a: view 1 a b | send | a:1 | view 3 a b cut b:1 stayed a | b:2
        b: view 1 a b | view 2 b | send | b:1 | view 3 a b cut a:1 stayed b | send | b:2
    """, "safe", but="prefix safe"),
    _sound("outsiders speak to the group", """
        x: send | send | send
        a: view 1 a b | x:1 | x:2 | x:3 | view 2 a b c
        b: view 1 a b | x:1 | x:2 | x:3 | view 2 a b c
        c: view 2 a b c | x:3
    """, but="same_view sender_in_view"),
    _sound("those who stay deliver what one that is gone never had", """
        a: view 1 a b c | send | transitional 1t a b | a:1 | holds a:1 | view 2 a b
        b: view 1 a b c | a:1 | holds a:1 | left
        c: view 1 a b c | crash
    """, "safe"),
    _sound("k of them hold it", """
        a: view 1 a b c | send | a:1 | stable a:1 a b | holds a:1 | view 2 a b
        b: view 1 a b c | a:1 | stable a:1 a b | holds a:1 | view 2 a b
        c: view 1 a b c | crash
    """, "resilient(majority)"),
    _sound("left out for a reason", """
        a: fault none | view 1 a b c d | view 2 a b d | view 3 a d
        b: fault paused | view 1 a b c d | view 2 a b d | stop excluded
        c: view 1 a b c d | crash
        d: view 1 a b c d | view 2 a b d | view 3 a d
    """),
    _sound("left out a while after it was cut off, or when it was leaving", """
        a: fault isolated of c until 900000 | view 1 a b c d | wait 1000000 | view 2 a b d
        a: wait 9000000 | view 3 a b
        b: view 1 a b c d | wait 1000000 | view 2 a b d | wait 9000000 | view 3 a b
        c: view 1 a b c d | wait 2000000 | stop excluded
        d: view 1 a b c d | wait 1000000 | view 2 a b d | fault leaving | wait 9900000 | stop
    """),
    _sound("all are cut off from each other, and nobody is to go on", """
        a: view 1 a b c | stop | fault apart
        b: view 1 a b c | crash
        c: view 1 a b c | crash
    """, but="accuracy exclusion"),
    _sound("a namesake is left out", """
        a: fault none | view 1 a b | view 2 a
        b: fault namesake | view 1 a b | wait 9000 | crash
    """),
    _sound("founded anew when all that remembered are gone", """
        a: view 1 a b founded | send | a:1@1 | crash
        b: view 1 a b founded | a:1@1 | view 2 b at 1 | crash
        a#2: restart | view 9 a#2 b#2 founded | send | a#2:1@1
        b#2: restart | view 9 a#2 b#2 founded | a#2:1@1
    """, "safe"),
    _sound("founded anew when the part that left it out is gone", """
        a: view 1 a b c founded | stop excluded
        b: view 1 a b c founded | view 2 b parted | crash
        c: view 1 a b c founded | crash
        a#2: restart | view 9 a#2 b#2 founded
        b#2: restart | view 9 a#2 b#2 founded
    """),
    _sound("only a newcomer showed the view that excluded the first member", """
        a: view 1 a founded | view 2 a b | view 3 a b c | stop excluded by view 4
        b: view 2 a b | view 3 a b c | crash
        c: view 3 a b c | crash
        d: view 4 b c d
    """),
    _sound("founded anew when those who excluded it are gone before they showed their view", """
        a: join 2 | view 1 a b c founded | crash
        b: join 2 | view 1 a b c founded | crash
        c: join 2 | view 1 a b c founded | stop excluded by view 2 founded 1
        a#2: restart | join 2 | view 9 a#2 b#2 c#2 founded
        b#2: restart | join 2 | view 9 a#2 b#2 c#2 founded
        c#2: restart | join 2 | view 9 a#2 b#2 c#2 founded
    """),
    _sound("founded anew when those who excluded a namesake are gone before they showed it", """
        a: join 2 | view 1 a b founded | stop excluded by view 2 founded 1
        b: join 2 | view 1 a b founded | crash
        a#2: join 2 | crash
        b#2: restart | join 2 | view 7 a#3 b#2 founded
        a#3: restart | join 2 | view 7 a#3 b#2 founded
    """),
    _sound("founded anew when only a newcomer showed the view that excluded one", """
        a: join 2 | view 1 a b c founded | crash
        b: join 2 | view 1 a b c founded | crash
        c: join 2 | view 1 a b c founded | stop excluded by view 2
        d: join 2 | view 2 a b d | crash
        a#2: restart | join 2 | view 9 a#2 b#2 c#2 founded
        b#2: restart | join 2 | view 9 a#2 b#2 c#2 founded
        c#2: restart | join 2 | view 9 a#2 b#2 c#2 founded
    """),
    _sound("founded anew when those who went on without it are gone", """
        a: view 1 a b c founded | crash
        c: view 1 a b c founded | stop excluded
        a#2: restart | view 2 a#2 b | crash
        b: view 2 a#2 b | crash
        a#3: restart | view 9 a#3 c#2 founded
        c#2: restart | view 9 a#3 c#2 founded
    """),
    _sound("what was on its way to the others is said again in a part that was let go on", """
        a: view 1 a b founded at 0 | send agreed | view 2 a parted at 0 | a:1@1 | crash
        b: view 1 a b founded at 0 | a:1@1 | view 3 a#2 b at 1
        a#2: restart | view 3 a#2 b at 1
    """, but="sending_view"),
    _sound("the place of an agreed message of one that was let go on", """
        a: view 1 a b c founded at 0 | view 2 a b at 0 | send | a:1@1
        b: view 1 a b c founded at 0 | view 2 a b at 0 | a:1@1
        c: view 1 a b c founded at 0 | send | c:1@1 | view 3 c parted at 1 | left
    """, "agreed", but="prefix uniform_order"),
    _sound("the place of a message that is safe in a part alone", """
        a: view 1 a b c founded at 0 | view 2 a b at 0 | send | a:1@1
        b: view 1 a b c founded at 0 | view 2 a b at 0 | a:1@1
        c: view 1 a b c founded at 0 | send | transitional 3t c | c:1@1 | view 3 c parted at 1
    """, "safe", but="prefix"),
    _sound("a part that was let go on counts by itself", """
        a: view 1 a b c founded at 0 | send | a:1@1 | view 2 a b at 1 | send | a:2@2
        b: view 1 a b c founded at 0 | a:1@1 | view 2 a b at 1 | a:2@2
        c: view 1 a b c founded at 0 | a:1@1 | view 3 c parted at 1 | send | c:1@2 | stop
        c#2: restart | view 4 a b c#2 cut a:2 at 2 | a:3@3
        a: view 4 a b c#2 at 2 | send | a:3@3
        b: view 4 a b c#2 at 2 | a:3@3
    """, "safe", but="prefix"),
    _sound("founded anew by nodes of which one has set its clock back", """
        a#3: view 1 a#3 b founded | crash
        b: view 1 a#3 b founded | crash
        a#1: restart | view 9 a#1 b#2 founded | send | a#1:1@1
        b#2: restart | view 9 a#1 b#2 founded | a#1:1@1
    """, "safe"),
    _sound("founded anew by one that was let go on later, and told of its founding alone", """
        b: join 2 | view 1 b c founded at 0 | send | b:1@1 | crash
        c: join 2 | view 1 b c founded at 0 | b:1@1 | crash
        c#2: restart | join 2 | view 3 a b#2 c#2 founded at 0 | view 5 a b#3 c#2 at 0
        c#2: view 6 c#2 parted at 0
        b#3: restart | join 2 | view 5 a b#3 c#2 at 0 | crash
    """, "safe"),
    _sound("what was safe with those that went on, without one that was let go on", """
        a: view 1 a b founded | send | a:1 | holds a:1 | view 2 a c
        b: view 1 a b founded | view 3 b parted | left
        c: view 2 a c cut a:1
    """, "safe"),
    _sound("a part that was let go on delivers what is left of the last view", """
        a: view 1 a b c | send | a:1 | send | a:2 | view 2 a b
        b: view 1 a b c | a:1 | a:2 | view 2 a b
        c: view 1 a b c | a:1 | transitional 3t c | a:2 | view 3 c parted
    """, "agreed", but="virtual_synchrony"),
    _sound("who joined a part that was let go on comes back to the others", """
        a: view 1 a b c founded | view 4 a b
        b: view 1 a b c founded | view 4 a b
        c: view 1 a b c founded | view 2 c parted | view 3 c d | stop
        d: view 3 c d | stop
        a: view 5 a b d#2
        b: view 5 a b d#2
        d#2: restart | view 5 a b d#2
    """),
    _sound("levels mixed", """
        a: view 1 a b | send unreliable | send fifo | send agreed | a:2 | a:3@1 | b:1@2
        b: view 1 a b | a:2 | a:3@1 | send resilient(majority) | b:1@2
    """),
    _sound("weaker messages overtake stronger ones of their sender", """
        a: view 1 a b | send agreed | send fifo | send reliable | send resilient(2) | send fifo
        a: a:2 | a:5 | a:3 | a:1@1 | a:4@2
        b: view 1 a b | a:3 | a:2 | a:1@1 | a:5 | a:4@2
    """, but="fifo"),
    _sound("unreliable messages owe nothing", """
        a: view 1 a b | send | send | send | a:1 | a:3
        b: view 1 a b | a:2
    """, "unreliable"),
    _sound("a joiner with a cut", """
        a: view 1 a b | send | a:1 | b:1 | view 2 a b c | send | a:2 | c:1
        b: view 1 a b | send | a:1 | b:1 | view 2 a b c | a:2 | c:1
        c: join | view 2 a b c cut a:1 b:1 | a:2 | send | c:1
    """),
    _sound("a joiner knows the dead only from its cut", """
        a: view 1 a b | send | a:1 | crash
        b: view 1 a b | a:1 | view 2 b | view 3 b c | send | b:1
        c: view 3 b c cut a:1 b:0 | b:1
    """),
    _sound("a clean leave", """
        a: view 1 a b c | send | a:1 | b:1 | left
        b: view 1 a b c | send | a:1 | b:1 | view 2 b c | send | b:2
        c: view 1 a b c | a:1 | b:1 | view 2 b c | b:2
    """),
    _sound("all leave", """
        a: view 1 a b | send | a:1 | left
        b: view 1 a b | a:1 | view 2 b | send | b:1 | left
    """),
    _sound("all leave one after the other", """
        a: view 1 a b c | send | a:1 | left
        b: view 1 a b c | a:1 | view 2 b c | send | b:1 | left
        c: view 1 a b c | a:1 | view 2 b c | b:1 | view 3 c | send | c:1 | left
    """),
    _sound("the last two leave together", """
        a: view 1 a b c | send | a:1 | left
        b: view 1 a b c | a:1 | view 2 b c | send | b:1 | left
        c: view 1 a b c | a:1 | view 2 b c | left
    """),
    _sound("two leave at once and one has heard more", """
        a: view 1 a b c | left
        b: view 1 a b c | c:1 | left
        c: view 1 a b c | send | c:1 | view 2 c
    """),
    _sound("a crash takes the last message along", """
        a: view 1 a b c | send | a:1 | send | a:2 | crash
        b: view 1 a b c | a:1 | view 2 b c | send | b:1
        c: view 1 a b c | a:1 | view 2 b c | b:1
    """),
    _sound("killed without a word", """
        a: view 1 a b c | send | a:1 | send
        b: view 1 a b c | a:1 | view 2 b c
        c: view 1 a b c | a:1 | view 2 b c
    """),
    _sound("killed before its trace was written", """
        a: view 1 a b | send | a:1
        b: view 1 a b | a:1 | a:2 | view 2 b
    """),
    _sound("a torn file owes nothing", """
        a: view 1 a b | send | a:1 | send | a:2
        b: view 1 a b | a:1
    """, torn="b"),
    _sound("a file is missing altogether", """
        a: view 1 a b | b:1 | send | a:1
    """),
    _sound("stopped and back again", """
        a: view 1 a b | send | a:1 | stop suspected
        a#2: join | view 3 a#2 b cut b:1 | send probe | a#2:1 | b:2
        b: view 1 a b | a:1 | view 2 b | send | b:1 | view 3 a#2 b | send probe | a#2:1 | b:2
    """),
    _sound("killed and back before anyone noticed", """
        a: view 1 a b | send | a:1 | send
        a#2: join | view 2 a#2 b | send | a#2:1
        b: view 1 a b | a:1 | view 2 a#2 b | a#2:1
    """),
    _sound("never let in", """
        a: view 1 a | send | a:1
        b: join
        c: join | send | stop no answer
    """),
    _sound("two sides of a split", """
        a: view 1 a b | send | a:1 | view 2 a | send | a:2
        b: view 1 a b | a:1 | view 3 b | send | b:1
    """, but="one_primary"),
    _sound("expelled, and unaware", """
        a: view 1 a b c | send | a:1 | view 2 a c | send probe | a:2
        b: view 1 a b c | a:1
        c: view 1 a b c | a:1 | view 2 a c | a:2
    """),
    _sound("the world kills everyone", """
        a: view 1 a b | send | a:1 | stop suspected
        a#2: join | crash
        b: view 1 a b | a:1 | view 2 b | crash
    """),
    _sound("only crashed lives of which one left first", """
        a: view 1 a b | left | crash
        b: view 1 a b | view 2 b | crash
    """),
    _sound("a leaver lacks what the others deliver outside the order", """
        a: view 1 a b c at 0 | send reliable | a:1 | view 2 a b at 0
        b: view 1 a b c at 0 | a:1 | view 2 a b at 0
        c: view 1 a b c at 0 | left
    """),
    _sound("outside the order, on either side of a view", """
        a: view 1 a b at 0 | send fifo | a:1 | view 2 a b at 0
        b: view 1 a b at 0 | view 2 a b at 0 | a:1
    """, but="sending_view"),
    _sound("held by all that were there, and one has joined since", """
        a: view 1 a b | send | a:1 | view 2 a b c | stable a:1 a b
        b: view 1 a b | a:1 | view 2 a b c
        c: view 2 a b c cut a:1
    """, "resilient(all)"),
    _sound("held by all that stayed, and one was removed and is back", """
        a: view 1 a b c | send | a:1 | view 2 a b | view 3 a b c | stable a:1 a b
        b: view 1 a b c | a:1 | view 2 a b | view 3 a b c
        c: view 3 a b c cut a:1
    """, "resilient(all)"),
    _sound("a view of one that is excluded, which the others do not have", """
        a: view 1 a b c at 0 founded | send | a:1@1 | view 3 a c at 1
        b: view 1 a b c at 0 founded | view 2 a b c at 0 | stop excluded
        c: view 1 a b c at 0 founded | a:1@1 | view 3 a c at 1
    """, "agreed", but="uniform_order same_view"),
    _sound("a view of two that are cut off, one of which goes on by itself", """
        a: view 1 a b c d e at 0 founded | send | a:1@1 | view 3 a c d at 1
        b: view 1 a b c d e at 0 founded | view 2 a b c d e at 0 | crash
        c: view 1 a b c d e at 0 founded | a:1@1 | view 3 a c d at 1
        d: view 1 a b c d e at 0 founded | a:1@1 | view 3 a c d at 1
        e: view 1 a b c d e at 0 founded | view 2 a b c d e at 0 | view 4 e parted at 0
    """, "agreed", but="uniform_order same_view"),
    _sound("held by one that stops before it shows a view", """
        a: view 1 a b | send | a:1 | stable a:1 a b | holds a:1 | view 2 a
        b: stop
    """, "resilient(2)"),
]
# fmt: on
