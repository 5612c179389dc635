"""Statements are told apart by their text, and updates round-trip."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unisono.errors import Misuse, TooLarge
from unisono.services.sqlite.statements import (
    NotReplicable,
    StatementKind,
    checked_write,
    kind_of,
    split,
)
from unisono.services.sqlite.updates import (
    UPDATE_BYTES_MAX,
    BadUpdate,
    CheckedRead,
    ReplicatedStatement,
    SqlFailure,
    SqlResult,
    SqlUpdate,
    checked_parameters,
    decode_results,
    decode_update,
    encode_failure,
    encode_results,
    encode_update,
)

VALUES = (
    st.none()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=("Cs",)))
    | st.binary()
)
PARAMETERS = st.lists(VALUES, max_size=4).map(tuple) | st.dictionaries(
    st.text("abc", min_size=1), VALUES, max_size=3
)
TEXTS = st.text(st.characters(exclude_categories=("Cs",)))
UPDATES = st.builds(
    SqlUpdate,
    st.lists(
        st.builds(ReplicatedStatement, TEXTS, st.lists(PARAMETERS, max_size=3).map(tuple)),
        max_size=3,
    ).map(tuple),
    st.lists(st.builds(CheckedRead, TEXTS, PARAMETERS, TEXTS), max_size=2).map(tuple),
    st.integers(0, 1 << 45),
    st.integers(0, (1 << 64) - 1),
    TEXTS,
)
ROWS = st.lists(st.lists(VALUES, max_size=3).map(tuple), max_size=3).map(tuple)
RESULTS = st.builds(
    SqlResult,
    st.integers(-1, 100),
    st.none() | st.integers(1),
    st.lists(TEXTS, max_size=3).map(tuple),
    ROWS,
)


@given(UPDATES)
def test_an_update_round_trips(update: SqlUpdate) -> None:
    assert decode_update(encode_update(update)) == update


@given(st.lists(RESULTS, max_size=3).map(tuple))
def test_results_round_trip(results: tuple[SqlResult, ...]) -> None:
    assert decode_results(encode_results(results)) == results


@given(st.builds(SqlFailure, st.integers(0), TEXTS, TEXTS, st.integers(0)))
def test_a_failure_round_trips(failure: SqlFailure) -> None:
    assert decode_results(encode_failure(failure)) == failure


@given(st.binary() | UPDATES.map(encode_update).map(lambda body: body[:-1]))
def test_other_bytes_are_no_update(body: bytes) -> None:
    with pytest.raises(BadUpdate):
        decode_update(body)


@pytest.mark.parametrize("lost", ["is", "do", "read", "at", "seed", "by"])
def test_an_update_without_a_field_is_none(lost: str) -> None:
    fields = json.loads(encode_update(SqlUpdate((), (), 0, 0, "")))
    del fields[lost]
    with pytest.raises(BadUpdate):
        decode_update(json.dumps(fields).encode())


def test_an_update_over_the_limit_is_refused() -> None:
    statement = ReplicatedStatement("INSERT INTO t VALUES (?)", (("x" * UPDATE_BYTES_MAX,),))
    with pytest.raises(TooLarge, match="split it"):
        encode_update(SqlUpdate((statement,), (), 0, 0, ""))


@pytest.mark.parametrize(
    "wrong", [(1 << 63,), ("\ud800",), (object(),), {"a": [1]}, "text", b"bytes", (1 + 2j,)]
)
def test_a_value_that_not_all_replicas_can_bind_is_refused(wrong: object) -> None:
    with pytest.raises(Misuse):
        checked_parameters(wrong)  # type: ignore[arg-type]


def test_values_become_what_sqlite_stores() -> None:
    given_values = (True, math.nan, math.inf, bytearray(b"x"), memoryview(b"y"), None)
    assert checked_parameters(given_values) == (1, None, math.inf, b"x", b"y", None)  # type: ignore[arg-type]
    assert checked_parameters({"a": True}) == {"a": 1}


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("  -- a comment\n /* another */ select 1", StatementKind.READ),
        ("VALUES (1)", StatementKind.READ),
        ("EXPLAIN DELETE FROM t", StatementKind.READ),
        ("PRAGMA table_info(t)", StatementKind.READ),
        ("PRAGMA foreign_keys = OFF", StatementKind.READ),
        ("PRAGMA user_version", StatementKind.READ),
        ("PRAGMA main.user_version = 3", StatementKind.WRITE),
        ("WITH q AS (SELECT 1) SELECT * FROM q", StatementKind.READ),
        ("WITH q AS (SELECT 1) INSERT INTO t SELECT * FROM q", StatementKind.WRITE),
        ("with recursive q(x) as (delete_is_no_word(1)) update t set a = 1", StatementKind.WRITE),
        ("insert into t values ('select; begin')", StatementKind.WRITE),
        ("create table t(a)", StatementKind.WRITE),
        ("; ;drop table t", StatementKind.WRITE),
        ("begin immediate", StatementKind.BEGIN),
        ("END", StatementKind.COMMIT),
        ("rollback", StatementKind.ROLLBACK),
    ],
)
def test_a_statement_is_known_by_its_keyword(sql: str, kind: StatementKind) -> None:
    assert kind_of(sql) is kind


@pytest.mark.parametrize(
    ("sql", "advice"),
    [
        ("", "write one"),
        ("-- nothing", "write one"),
        ("SELECT 1", "query"),
        ("BEGIN", "db.transaction"),
        ("COMMIT", "db.transaction"),
        ("SAVEPOINT a", "db.transaction"),
        ("RELEASE a", "db.transaction"),
        ("PRAGMA foreign_keys = OFF", "foreign_keys is on"),
        ("VACUUM", "free pages"),
        ("ATTACH 'x' AS x", "INSERT"),
        ("DETACH x", "no other file"),
        ("DELETE FROM t WHERE a IN (SELECT a FROM t LIMIT 3)", "ORDER BY"),
        ("DELETE FROM t WHERE a IN (SELECT a FROM (SELECT a FROM t ORDER BY a) LIMIT 3)", "ORDER"),
        ("INSERT INTO t SELECT a, row_number() OVER (ORDER BY a) FROM u LIMIT 1", "ORDER BY"),
        ("CREATE TRIGGER r AFTER DELETE ON t BEGIN DELETE FROM u LIMIT 1; END", "ORDER BY"),
    ],
)
def test_what_cannot_be_an_update_is_refused_with_advice(sql: str, advice: str) -> None:
    with pytest.raises(NotReplicable, match=advice):
        checked_write(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM t WHERE a IN (SELECT a FROM t ORDER BY a LIMIT 3)",
        "INSERT INTO t SELECT a FROM u ORDER BY a LIMIT 3 OFFSET 1",
        "INSERT INTO t VALUES ('it''s LIMIT', \"LIMIT\", [LIMIT], `LIMIT`) -- LIMIT",
    ],
)
def test_an_ordered_limit_and_the_word_in_quotes_pass(sql: str) -> None:
    assert checked_write(sql) == sql


def test_a_script_is_split_where_statements_end() -> None:
    script = """CREATE TABLE t(a); -- first; really
        INSERT INTO t VALUES (';');;
        CREATE TRIGGER r AFTER INSERT ON t BEGIN DELETE FROM t; SELECT 1; END;
        -- nothing
        INSERT INTO t VALUES (2)"""
    assert [part.split()[0] for part in split(script)] == ["CREATE", "--", "CREATE", "--"]
    assert [kind_of(part) for part in split(script)] == [StatementKind.WRITE] * 4
    assert split(" ; -- x") == []
