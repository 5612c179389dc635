"""The laws and the measures once more, in DuckDB's SQL, written from their definitions.

It says which laws each run breaks, and measures each run. It knows nothing of quarantine, torn
files or cuts: the traces that it is given have none. Lives of a run are numbered from 1 in the
order of their keys, and what everyone did with a message stands in one row, a column a life.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb

from tests.yardstick import places

LEVEL = """CASE service WHEN 'unreliable' THEN 0 WHEN 'reliable' THEN 1 WHEN 'fifo' THEN 2
    WHEN 'causal' THEN 3 WHEN 'agreed' THEN 4 WHEN 'safe' THEN 5 ELSE 4 END"""
LAWS = (
    *("no_creation", "no_duplication", "fifo", "causal", "total_order", "prefix"),
    *("agreement", "validity", "virtual_synchrony", "view_order", "self_inclusion"),
    *("safe", "progress"),
    *places.LAWS,
)
"""Those that are written in SQL: what the others say is not compared."""
VIEWS_MAX = 60
"""Views and passages of a run are bits of a number."""


class Yardstick:
    """Verdicts and measures on a trace directory; what does not fit into memory goes to a file."""

    def __init__(self, trace: Path, scratch: Path, threads: int = 2, memory: str = "6GB") -> None:
        self.db: Any = duckdb.connect(str(scratch / "yardstick.duckdb"))
        self.db.execute(f"SET threads={threads}; SET memory_limit='{memory}';")
        self.db.execute(
            f"SET temp_directory='{scratch / 'spill'}'; SET preserve_insertion_order=false;"
        )
        self.trace = trace
        self.broken: set[tuple[str, str]] = set()

    def run(self) -> None:
        self._read()
        self._views()
        self._messages()
        self.db.execute(places.TABLES)
        for name in LAWS:
            for query in places.LAWS.get(name) or getattr(self, f"_{name}")():
                rows = self.db.execute(f"SELECT DISTINCT run FROM ({query})").fetchall()
                self.broken |= {(run, name) for (run,) in rows}

    def close(self) -> None:
        self.db.close()

    def _all(self, query: str) -> list[tuple[Any, ...]]:
        return self.db.execute(query).fetchall()  # type: ignore[no-any-return]

    # -- tables ------------------------------------------------------------------------------------

    def _read(self) -> None:
        files = f"read_parquet('{self.trace}/*/*.parquet', hive_partitioning=true)"
        self.db.execute(f"""
            CREATE TABLE lives AS
              SELECT run, node || '#' || incarnation AS key, node, incarnation,
                row_number() OVER (PARTITION BY run ORDER BY node || '#' || incarnation) AS life
              FROM (SELECT DISTINCT run, node, incarnation FROM {files});
            CREATE TABLE ends AS
              SELECT run, node || '#' || incarnation AS key, arg_min(
                CASE WHEN kind = 'crash' THEN 'crashed' WHEN detail = 'left' THEN 'left'
                ELSE 'stopped' END, step) AS ended
              FROM {files} WHERE kind IN ('leave', 'crash') GROUP BY ALL;
            CREATE TABLE views AS
              SELECT l.run, life, l.key, step, view, members, seq,
                coalesce(list_contains(changes, 'founded'), false) AS founded,
                row_number() OVER (PARTITION BY l.run, life ORDER BY step) AS place,
                lead(step) OVER (PARTITION BY l.run, life ORDER BY step) AS until,
                lead(view) OVER (PARTITION BY l.run, life ORDER BY step) AS following
              FROM {files} r JOIN lives l
                ON l.run = r.run AND l.node = r.node AND l.incarnation = r.incarnation
              WHERE kind = 'view';
            CREATE TABLE sends AS
              SELECT l.run, life, number, step, t_us, {LEVEL}::TINYINT AS level, size, digest,
                coalesce(detail = 'probe', false) AS probe
              FROM {files} r JOIN lives l
                ON l.run = r.run AND l.node = r.node AND l.incarnation = r.incarnation
              WHERE kind = 'send';
            CREATE TABLE deliveries AS
              SELECT l.run, l.life::UTINYINT AS life, s.life::UTINYINT AS source, number, step,
                t_us, {LEVEL}::TINYINT AS level, seq, size, digest
              FROM {files} r
                JOIN lives l ON l.run = r.run AND l.node = r.node AND l.incarnation = r.incarnation
                JOIN lives s ON s.run = r.run AND s.node = r.sender
                  AND s.incarnation = r.sender_incarnation
              WHERE kind = 'deliver';
            CREATE TABLE late AS SELECT r.run FROM {files} r JOIN (
                SELECT run, node, incarnation, min(step) AS step FROM {files}
                WHERE kind IN ('leave', 'crash') GROUP BY ALL) e
              ON e.run = r.run AND e.node = r.node AND e.incarnation = r.incarnation
              WHERE kind IN ('send', 'deliver', 'view', 'transitional', 'stable')
                AND r.step > e.step;
        """)
        (self.width,) = self._all("SELECT max(life) FROM lives")[0]
        self.all = range(1, self.width + 1)

    def _views(self) -> None:
        """Who knew whom, how each ended, and where obligations begin: at 0 for those known."""
        self.db.execute("""
            CREATE TABLE listed AS SELECT v.run, v.life, v.step, v.view, v.place, v.until,
                m.life AS member
              FROM (SELECT *, unnest(members) AS name FROM views) v
              JOIN lives m ON m.run = v.run AND m.key = v.name;
            CREATE TABLE known AS SELECT run, life, member, bool_or(until IS NULL) AS final
              FROM listed GROUP BY ALL;
            CREATE TABLE plain AS SELECT l.*, coalesce(ended, 'alive') AS ended
              FROM lives l LEFT JOIN ends e ON e.run = l.run AND e.key = l.key;
            CREATE TABLE gone AS SELECT DISTINCT k.run, k.member AS life FROM known k
              JOIN plain p ON p.run = k.run AND p.life = k.life AND p.ended IN ('alive', 'left')
              WHERE NOT final AND NOT EXISTS (SELECT 1 FROM known o WHERE o.run = k.run
                AND o.life = k.member AND o.member = k.life AND NOT o.final);
            CREATE TABLE lived AS SELECT p.*, inside,
                CASE WHEN ended = 'alive' AND (g.life IS NOT NULL OR newest > incarnation)
                  THEN 'vanished' ELSE ended END AS fate,
                inside AND fate IN ('alive', 'left') AS correct
              FROM (SELECT p.*, max(incarnation) OVER (PARTITION BY run, node) AS newest,
                  EXISTS (SELECT 1 FROM views v WHERE v.run = p.run AND v.life = p.life) AS inside
                FROM plain p) p
              LEFT JOIN gone g ON g.run = p.run AND g.life = p.life;
            CREATE TABLE passages AS SELECT run, life, view, following, min(step) AS step,
                arg_min(until, step) AS until,
                dense_rank() OVER (PARTITION BY run ORDER BY view, following) - 1 AS passage
              FROM views WHERE following IS NOT NULL GROUP BY run, life, view, following;
        """)
        most = self._all("SELECT max(n) FROM (SELECT count(*) AS n FROM views GROUP BY run, life)")
        assert (most[0][0] or 0) <= VIEWS_MAX, "this yardstick is for runs of few views"

    def _messages(self) -> None:
        """One row a message, and for every life: how often it delivered it, when first as reliable,
        in which passages, in which views as safe; and its place among ordered messages."""
        each = ", ".join(
            f"count(*) FILTER (life = {i}) AS h{i}, "
            f"min(step) FILTER (life = {i} AND level >= 1) AS r{i}, "
            f"coalesce(bit_or(1::BIGINT << passage) FILTER (life = {i} AND level >= 1), 0)"
            f" AS b{i}, "
            f"coalesce(bit_or(1::BIGINT << place) FILTER (life = {i} AND level = 5), 0) AS s{i}, "
            f"min(step) FILTER (life = {i} AND level >= 4) AS o{i}, "
            f"arg_min(seq, step) FILTER (life = {i} AND level >= 4) AS q{i}"
            for i in self.all
        )
        self.db.execute(f"""
            CREATE TABLE placed AS
              SELECT d.run, d.life, source, number, d.step, level, d.seq, passage, v.place,
                v.view
              FROM deliveries d ASOF LEFT JOIN views v
                ON v.run = d.run AND v.life = d.life AND v.step <= d.step
              LEFT JOIN passages p ON p.run = d.run AND p.life = d.life AND p.step = v.step;
            CREATE TABLE messages AS SELECT run, source, number, {each}
              FROM placed GROUP BY run, source, number;
        """)

    # -- who delivers what -------------------------------------------------------------------------

    def _no_creation(self) -> list[str]:
        self.db.execute("""
            CREATE TABLE odd AS SELECT * FROM deliveries d WHERE NOT EXISTS (SELECT 1 FROM sends s
              WHERE s.run = d.run AND s.life = d.source AND s.number = d.number
                AND s.size = d.size AND s.digest = d.digest)""")
        sent = """EXISTS (SELECT 1 FROM sends s WHERE s.run = o.run AND s.life = o.source
            AND s.number = o.number)"""
        return [
            f"SELECT run FROM odd o WHERE {sent}",
            f"""SELECT o.run FROM odd o JOIN lived l ON l.run = o.run AND l.life = o.source
              WHERE NOT {sent} AND NOT (l.fate = 'vanished' AND o.number > (SELECT
                coalesce(max(number), 0) FROM sends s WHERE s.run = o.run
                  AND s.life = o.source))""",
            f"""SELECT run FROM odd o WHERE NOT {sent} GROUP BY run, source, number
              HAVING count(DISTINCT (size, digest)) > 1""",
        ]

    def _no_duplication(self) -> list[str]:
        twice = " OR ".join(f"h{i} > 1" for i in self.all)
        return [f"SELECT run FROM messages WHERE {twice}"]

    def _validity(self) -> list[str]:
        heard = " ".join(f"WHEN {i} THEN h{i}" for i in self.all)
        return [
            f"""SELECT s.run FROM sends s JOIN lived l ON l.run = s.run AND l.life = s.life
              LEFT JOIN messages m ON m.run = s.run AND m.source = s.life AND m.number = s.number
              WHERE l.correct AND s.level >= 1
                AND coalesce(CASE s.life {heard} END, 0) = 0"""
        ]

    def _knows(self, life: int) -> str:
        return f"""EXISTS (SELECT 1 FROM known k WHERE k.run = m.run AND k.life = {life}
            AND k.member = m.source)"""

    def _pairs(self) -> list[tuple[int, int]]:
        return [(p, q) for p in self.all for q in self.all if p != q]

    def _agreement(self) -> list[str]:
        self.db.execute("""
            CREATE TABLE left_out AS SELECT a.run, a.life AS p, g.member AS q, a.step,
                (SELECT count(*) FROM listed b WHERE b.run = a.run AND b.life = a.life
                  AND b.place = a.place - 1 AND NOT EXISTS (SELECT 1 FROM listed c
                    WHERE c.run = a.run AND c.life = a.life AND c.place = a.place
                      AND c.member = b.member)) AS gone
              FROM views a JOIN listed g ON g.run = a.run AND g.life = a.life
                AND g.place = a.place - 1
              WHERE NOT EXISTS (SELECT 1 FROM listed c WHERE c.run = a.run AND c.life = a.life
                AND c.place = a.place AND c.member = g.member);
            CREATE TABLE partings AS SELECT run, p, q, min(step) AS step,
                arg_min(gone, step) = 1 AS alone FROM left_out GROUP BY run, p, q;
            CREATE TABLE owing AS SELECT run, p, q, until FROM (
              SELECT q.run, p.life AS p, q.life AS q, CASE
                WHEN q.fate = 'alive' AND p.fate = 'alive' THEN
                  CASE WHEN coalesce(yours.final AND mine.final, false) THEN 1e18 END
                WHEN q.fate = 'alive' THEN
                  CASE WHEN coalesce(yours.final, false) AND mine.member IS NOT NULL THEN 1e18 END
                WHEN coalesce(mine.final, false) THEN CASE WHEN alone THEN t.step END
                WHEN p.fate = 'left' AND coalesce(yours.final, false) AND mine.member IS NOT NULL
                  THEN 1e18 END AS until
              FROM lived q JOIN lived p ON p.run = q.run AND p.life <> q.life
              LEFT JOIN known mine ON mine.run = q.run AND mine.life = q.life
                AND mine.member = p.life
              LEFT JOIN known yours ON yours.run = q.run AND yours.life = p.life
                AND yours.member = q.life
              LEFT JOIN partings t ON t.run = q.run AND t.p = p.life AND t.q = q.life
              WHERE p.correct AND q.correct) WHERE until IS NOT NULL;
        """)
        return [
            f"""SELECT m.run FROM messages m JOIN owing w ON w.run = m.run AND w.p = {p}
              AND w.q = {q} WHERE h{q} = 0 AND r{p} < w.until AND {self._knows(q)}"""
            for p, q in self._pairs()
        ]

    def _safe(self) -> list[str]:
        return [
            f"""SELECT m.run FROM messages m JOIN listed v ON v.run = m.run AND v.life = {p}
              AND v.member = {q} JOIN lived l ON l.run = m.run AND l.life = {q} AND l.correct
              WHERE h{q} = 0 AND s{p} <> 0 AND (s{p} >> v.place) & 1 = 1 AND {self._knows(q)}"""
            for p, q in self._pairs()
        ]

    def _virtual_synchrony(self) -> list[str]:
        return [
            f"""SELECT m.run FROM messages m
              JOIN passages a ON a.run = m.run AND a.life = {p}
              JOIN passages b ON b.run = m.run AND b.life = {q} AND b.passage = a.passage
              WHERE b{p} <> b{q} AND (b{p} >> a.passage) & 1 = 1 AND (b{q} >> a.passage) & 1 = 0
                AND {self._knows(q)}"""
            for p, q in self._pairs()
        ]

    def _progress(self) -> list[str]:
        self.db.execute("""CREATE TABLE probes AS SELECT s.run, s.life, number FROM sends s
            JOIN lived l ON l.run = s.run AND l.life = s.life WHERE probe AND l.fate = 'alive'""")
        lost = [
            f"""SELECT p.run FROM probes p JOIN lived l ON l.run = p.run AND l.life = {q}
              LEFT JOIN messages m ON m.run = p.run AND m.source = p.life AND m.number = p.number
              WHERE l.fate = 'alive' AND l.inside AND coalesce(h{q}, 0) = 0"""
            for q in self.all
        ]
        return [
            *lost,
            """SELECT l.run FROM lived l JOIN probes p ON p.run = l.run
              WHERE l.fate = 'alive' AND NOT l.inside""",
            """SELECT run FROM lived GROUP BY run HAVING bool_or(inside)
              AND NOT bool_or(fate IN ('alive', 'left', 'vanished'))""",
        ]

    # -- order -------------------------------------------------------------------------------------

    def _fifo(self) -> list[str]:
        self.db.execute("""
            CREATE TABLE steps AS SELECT run, life, source, number, max(number) OVER (
                PARTITION BY run, life, source ORDER BY step
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS earlier
              FROM deliveries WHERE level >= 2;
            CREATE TABLE numbers AS SELECT run, source, number, lag(number) OVER (
                PARTITION BY run, source ORDER BY number) AS known_before
              FROM (SELECT run, life AS source, number FROM sends WHERE level >= 2
                UNION SELECT run, source, number FROM deliveries WHERE level >= 2);
            CREATE TABLE jumps AS SELECT s.*, known_before FROM steps s
              JOIN numbers n ON n.run = s.run AND n.source = s.source AND n.number = s.number
              WHERE known_before > coalesce(earlier, 0) AND s.number >= coalesce(earlier, 0);
        """)
        return [
            "SELECT run FROM steps WHERE number < earlier",
            """SELECT j.run FROM jumps j LEFT JOIN known k ON k.run = j.run AND k.life = j.life
              AND k.member = j.source WHERE earlier IS NOT NULL OR k.member IS NOT NULL""",
        ]

    def _causal(self) -> list[str]:
        had = ", ".join(
            f"""coalesce(max(number) FILTER (source = {s} AND NOT sent) OVER past, 0) AS n{s}"""
            for s in self.all
        )
        self.db.execute(f"""
            CREATE TABLE heard AS SELECT run, life, source, number, step, sent, {had},
                coalesce(max(number) FILTER (sent) OVER past, 0) AS own
              FROM (SELECT run, life, source, number, step, false AS sent FROM deliveries
                  WHERE level >= 3
                UNION ALL SELECT run, life, life, number, step, true FROM sends WHERE level >= 3)
              WINDOW past AS (PARTITION BY run, life ORDER BY step
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING);
            CREATE TABLE needs AS SELECT run, source, number,
                {
            ", ".join(
                f"arg_min(CASE WHEN source = {s} THEN own ELSE n{s} END, step) AS n{s}"
                for s in self.all
            )
        }
              FROM heard WHERE sent GROUP BY run, source, number;
        """)
        early = " OR ".join(f"h.n{s} < w.n{s}" for s in self.all)
        self.db.execute(f"""
            CREATE TABLE early AS SELECT h.run, h.life,
                {", ".join(f"h.n{s} < w.n{s} AS e{s}" for s in self.all)}
              FROM heard h JOIN needs w ON w.run = h.run AND w.source = h.source
                AND w.number = h.number WHERE NOT h.sent AND ({early});
            DROP TABLE heard;
        """)
        return [
            f"""SELECT e.run FROM early e JOIN known k ON k.run = e.run AND k.life = e.life
              AND k.member = {s} WHERE e{s}"""
            for s in self.all
        ]

    def _ordered(self) -> None:
        if self._all("SELECT 1 FROM duckdb_tables() WHERE table_name = 'ranks'"):
            return
        places = ", ".join(
            f"CASE WHEN o{i} IS NOT NULL THEN row_number() OVER (PARTITION BY run, o{i} IS NULL"
            f" ORDER BY o{i}) END AS p{i}, q{i}"
            for i in self.all
        )
        some = " OR ".join(f"o{i} IS NOT NULL" for i in self.all)
        self.db.execute(
            f"CREATE TABLE ranks AS SELECT run, source, number, {places} FROM messages WHERE {some}"
        )

    def _total_order(self) -> list[str]:
        self._ordered()
        queries = []
        for p in self.all:
            later = [q for q in self.all if q > p]
            if later:
                lags = ", ".join(
                    f"CASE WHEN p{q} IS NOT NULL THEN lag(p{q} IGNORE NULLS) OVER mine > p{q} END"
                    f" AS x{q}"
                    for q in later
                )
                crossed = " OR ".join(f"x{q}" for q in later)
                queries.append(
                    f"""SELECT run FROM (SELECT run, {lags} FROM ranks WHERE p{p} IS NOT NULL
                      WINDOW mine AS (PARTITION BY run ORDER BY p{p})) WHERE {crossed}"""
                )
            queries.append(
                f"""SELECT run FROM (SELECT run, q{p} <= lag(q{p}) OVER (PARTITION BY run
                  ORDER BY p{p}) AS fallen FROM ranks WHERE q{p} IS NOT NULL) WHERE fallen"""
            )
        seqs = [f"q{i}" for i in self.all]
        queries.append(
            f"SELECT run FROM ranks WHERE least({', '.join(seqs)}) <> greatest({', '.join(seqs)})"
        )
        return queries

    def _prefix(self) -> list[str]:
        self._ordered()
        queries = []
        for p in self.all:
            for q in self.all:
                if q <= p:
                    continue
                queries.append(f"""
                  WITH start AS (SELECT run, max(CASE WHEN p{p} = 1 THEN p{q} END) AS there,
                      max(CASE WHEN p{q} = 1 THEN p{p} END) AS here, max(p{p}) AS mine,
                      max(p{q}) AS yours FROM ranks GROUP BY run),
                    same AS (SELECT a.run FROM views a JOIN views b ON b.run = a.run
                      AND b.view = a.view WHERE a.life = {p} AND b.life = {q} AND a.place = 1
                      AND b.place = 1),
                    laid AS (SELECT s.*, CASE WHEN there IS NOT NULL THEN 1
                        ELSE coalesce(here, 1) END AS begin_at, coalesce(there, 1) AS their
                      FROM start s WHERE mine > 0 AND yours > 0 AND (there IS NOT NULL
                        OR here IS NOT NULL OR run IN (SELECT run FROM same)))
                  SELECT r.run FROM ranks r JOIN laid l ON l.run = r.run
                  WHERE p{p} >= begin_at AND p{p} - begin_at + their <= yours
                    AND p{q} IS DISTINCT FROM p{p} - begin_at + their""")
        return queries

    # -- views -------------------------------------------------------------------------------------

    def _view_order(self) -> list[str]:
        self.db.execute("""CREATE TABLE firsts AS SELECT run, life, view, count(*) AS times,
            min(place) AS place, arg_min(list_sort(members), place) AS members
            FROM views GROUP BY ALL""")
        return [
            "SELECT run FROM firsts WHERE times > 1",
            "SELECT run FROM firsts GROUP BY run, view HAVING count(DISTINCT members) > 1",
            """SELECT a.run FROM firsts a JOIN firsts b ON b.run = a.run AND b.life = a.life
                AND a.place < b.place
              JOIN firsts c ON c.run = a.run AND c.view = a.view AND c.life <> a.life
              JOIN firsts d ON d.run = a.run AND d.view = b.view AND d.life = c.life
              WHERE c.place > d.place""",
        ]

    def _self_inclusion(self) -> list[str]:
        return ["SELECT run FROM views WHERE NOT list_contains(members, key)"]

    # -- measures ----------------------------------------------------------------------------------

    def measures(self) -> list[tuple[Any, ...]]:
        """`run, node, sent, delivered, octets, span_us, p50, p90, p99, p999, max`, in order."""
        self.db.execute("""
            CREATE TABLE told AS SELECT run, life, sum(sent)::BIGINT AS sent,
                sum(heard)::BIGINT AS delivered, sum(octets)::BIGINT AS octets,
                max(last) - min(first) AS span_us
              FROM (SELECT run, life, count(*) AS sent, 0 AS heard, 0 AS octets,
                  min(t_us) AS first, max(t_us) AS last FROM sends GROUP BY run, life
                UNION ALL SELECT run, life, 0, count(*), sum(size), min(t_us), max(t_us)
                  FROM deliveries GROUP BY run, life) GROUP BY run, life;
            CREATE TABLE took AS SELECT d.run, d.life, d.t_us - s.t_us AS latency
              FROM deliveries d JOIN (SELECT run, life, number, arg_min(t_us, step) AS t_us
                FROM sends GROUP BY ALL) s
              ON s.run = d.run AND s.life = d.source AND s.number = d.number;
        """)
        parts = "quantile_disc(latency, [0.5, 0.9, 0.99, 0.999, 1.0])"
        nodes = f"""SELECT t.run, any_value(l.node) AS node, sum(sent)::BIGINT AS sent,
              sum(delivered)::BIGINT, sum(octets)::BIGINT, sum(span_us)::BIGINT, any_value(parts)
            FROM told t JOIN lives l ON l.run = t.run AND l.life = t.life
            JOIN (SELECT k.run, m.node, {parts} AS parts FROM took k JOIN lives m
              ON m.run = k.run AND m.life = k.life GROUP BY k.run, m.node) q
            ON q.run = t.run AND q.node = l.node GROUP BY t.run, l.node"""
        whole = f"""SELECT t.run, NULL, sum(sent)::BIGINT, sum(delivered)::BIGINT,
              sum(octets)::BIGINT, sum(span_us)::BIGINT, any_value(parts) FROM told t
            JOIN (SELECT run, {parts} AS parts FROM took GROUP BY run) q ON q.run = t.run
            GROUP BY t.run"""
        rows = self._all(whole) + self._all(nodes)
        return sorted(
            ((*row[:-1], *row[-1]) for row in rows), key=lambda row: (row[0], row[1] or "")
        )
