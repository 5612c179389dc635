"""The laws of sequence numbers and of the view of a delivery, in DuckDB's SQL.

Beside what `sql` does not know, these do not know of transitional views, of parts that were let go
on, and of runs with several foundings.
"""

from __future__ import annotations

TABLES = """
    CREATE TABLE kin AS
      WITH RECURSIVE together(run, life, other) AS (
        SELECT run, life, life FROM lives
        UNION SELECT t.run, t.life, b.life FROM together t
          JOIN views a ON a.run = t.run AND a.life = t.other
          JOIN views b ON b.run = a.run AND b.view = a.view),
      component AS (SELECT run, life, min(other) AS lineage FROM together GROUP BY ALL),
      founded AS (SELECT run, min(lineage) AS lineage FROM component
        JOIN (SELECT DISTINCT run, life FROM views WHERE founded) USING (run, life)
        GROUP BY run HAVING count(DISTINCT lineage) = 1)
      SELECT c.run, c.life, coalesce(f.lineage, c.lineage) AS lineage
      FROM component c LEFT JOIN founded f USING (run);
    CREATE TABLE places AS
      SELECT *, max(seq) OVER (PARTITION BY run, life ORDER BY step
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS earlier
      FROM (SELECT run, life, step, seq, source, number, level, view, false AS is_view FROM placed
          WHERE seq IS NOT NULL
        UNION ALL SELECT run, life, step, seq, NULL, NULL, NULL, view, true FROM views
          WHERE seq IS NOT NULL)
      JOIN kin USING (run, life);
    CREATE TABLE leads AS
      SELECT DISTINCT run, before, view FROM (
        SELECT run, view, lag(view) OVER (PARTITION BY run, node ORDER BY incarnation, step)
          AS before FROM views JOIN lives USING (run, life)) WHERE before <> view;
    CREATE TABLE first_installed AS
      SELECT run, view, seq, lineage, members FROM (SELECT *, row_number() OVER (
        PARTITION BY run, view ORDER BY life, step) AS nth FROM views JOIN kin USING (run, life))
      WHERE nth = 1;
    CREATE TABLE kept AS
      WITH RECURSIVE k(run, view) AS (
        SELECT v.run, v.view FROM views v JOIN lived USING (run, life) WHERE correct
        UNION SELECT b.run, b.view FROM k JOIN views a ON a.run = k.run AND a.view = k.view
          JOIN views b ON b.run = a.run AND b.life = a.life AND b.place < a.place)
      SELECT * FROM k;
    CREATE TABLE view_steps AS
      WITH RECURSIVE after(run, view, reached) AS (
        SELECT run, before, view FROM leads
        UNION SELECT a.run, a.view, l.view FROM after a
          JOIN leads l ON l.run = a.run AND l.before = a.reached)
      SELECT l.run, l.before, v.seq AS before_seq, w.seq AS seq,
        EXISTS (SELECT 1 FROM kept k WHERE k.run = l.run AND k.view = l.view)
          OR 2 * (SELECT count(DISTINCT i.life) FROM views i WHERE i.run = l.run
            AND i.view = l.view AND list_contains(v.members, i.key))
          > len(list_distinct(v.members)) AS went_on FROM leads l
        JOIN first_installed v ON v.run = l.run AND v.view = l.before
        JOIN first_installed w ON w.run = l.run AND w.view = l.view AND w.lineage = v.lineage
      WHERE NOT EXISTS (SELECT 1 FROM after a WHERE a.run = l.run AND a.view = l.view
        AND a.reached = l.before);
"""
"""`kin` has the lineage of each incarnation, `places` every delivery and view with a sequence
number and the highest before it, `view_steps` the views that follow each other, and whether the
group went on with the later one."""


def _held(counts: str, always: str) -> tuple[str, ...]:
    """One message a place and one place a message, of the deliveries that count; and no view before
    them, nor where few went on with it before those that count always."""
    held = f"""SELECT p.* FROM places p JOIN lived l ON l.run = p.run AND l.life = p.life
        WHERE NOT is_view AND ({counts})"""
    return (
        f"""SELECT run FROM ({held}) GROUP BY run, lineage, seq
          HAVING count(DISTINCT (source, number)) > 1""",
        f"""SELECT run FROM ({held}) GROUP BY run, lineage, source, number
          HAVING count(DISTINCT seq) > 1""",
        f"""SELECT s.run FROM view_steps s JOIN ({held}) h ON h.run = s.run AND h.view = s.before
          WHERE h.seq > s.seq AND (s.went_on OR {always})""",
        "SELECT run FROM view_steps WHERE before_seq > seq",
    )


LAWS: dict[str, tuple[str, ...]] = {
    "one_place": _held("level = 5 OR (correct AND level >= 4)", "level = 5"),
    "uniform_order": _held("level >= 4", "true"),
    "gap_free": (
        """SELECT j.run FROM places j
          JOIN (SELECT DISTINCT run, lineage, seq FROM places WHERE level >= 4) k
            ON k.run = j.run AND k.lineage = j.lineage AND k.seq > j.earlier
              AND k.seq < j.seq + j.is_view::INT
          WHERE j.seq > j.earlier AND (j.is_view OR j.seq > j.earlier + 1)
            AND NOT EXISTS (SELECT 1 FROM places o WHERE o.run = j.run AND o.life = j.life
              AND o.seq = k.seq AND NOT o.is_view)""",
    ),
    "every_place": (
        """SELECT run FROM (SELECT j.run, j.life, j.step, j.seq - j.earlier - 1 AS wanted,
            count(DISTINCT k.seq) AS found FROM places j
          LEFT JOIN places k ON k.run = j.run AND k.lineage = j.lineage AND k.seq > j.earlier
            AND k.seq < j.seq
          WHERE j.seq > j.earlier + 1 GROUP BY ALL) WHERE found < wanted""",
    ),
    "same_view": (
        """SELECT run FROM (SELECT run, life, source, number, arg_min(view, step) AS view
            FROM placed p WHERE level >= 1 AND view IS NOT NULL
              AND NOT (seq IS NULL AND level < 4 AND EXISTS (SELECT 1 FROM views v
                WHERE v.run = p.run AND v.life = p.life AND v.seq IS NOT NULL)) GROUP BY ALL)
          GROUP BY run, source, number HAVING count(DISTINCT view) > 1""",
    ),
    "sender_in_view": (
        """SELECT run FROM placed p WHERE place IS NOT NULL AND NOT EXISTS (SELECT 1 FROM listed m
          WHERE m.run = p.run AND m.life = p.life AND m.place = p.place
            AND m.member = p.source)""",
    ),
    "local_order": (
        "SELECT run FROM placed WHERE view IS NULL",
        """SELECT d.run FROM deliveries d JOIN (SELECT run, life, number, min(step) AS step
            FROM sends GROUP BY ALL) s
          ON s.run = d.run AND s.life = d.life AND d.source = d.life AND s.number = d.number
          WHERE s.step > d.step""",
        """SELECT run FROM (SELECT run, number, max(number) OVER (PARTITION BY run, life
            ORDER BY step ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS earlier FROM sends)
          WHERE number <= earlier""",
        "SELECT run FROM late",
        "SELECT run FROM places WHERE is_view AND seq < earlier",
        """SELECT p.run FROM placed p JOIN views v ON v.run = p.run AND v.life = p.life
          AND v.place = p.place WHERE p.seq <= v.seq""",
        """SELECT run FROM (SELECT run, seq, max(seq) OVER (PARTITION BY run, life ORDER BY step
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS earlier FROM views)
          WHERE seq IS NULL AND earlier IS NOT NULL""",
    ),
}
"""By law, queries for the runs that break it."""
