"""The columns of the tables. Those with the rows of runs have `run` and `date` besides."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from unisono.trace.parquet import SCHEMA

RUN: Final = pa.field("run", pa.string())
"""The first column of the rows of runs."""
DATE: Final = pa.field("date", pa.date32())
"""Their last column, which is a folder."""

_TYPES: Final = {
    **dict(zip(SCHEMA.names, SCHEMA.types, strict=True)),
    **dict.fromkeys(("row", "view_step", "sent_us", "latency_us", "octets", "at_us"), pa.int64()),
    **dict.fromkeys(("recovery_us", "resumed_us", "span_us", "sent", "delivered"), pa.int64()),
    **dict.fromkeys(("p50_us", "p90_us", "p99_us", "p999_us", "max_us"), pa.int64()),
    **dict.fromkeys(("packets_out", "octets_out", "retransmissions", "naks"), pa.int64()),
    **dict.fromkeys(("drops", "token_rotation_p50_us", "token_rotation_max_us"), pa.int64()),
    **dict.fromkeys(("views", "events", "quarantined", "unjudged", "nodes"), pa.int64()),
    **dict.fromkeys(("level", "place", "bin", "files"), pa.int32()),
    **dict.fromkeys(("messages_per_s", "mb_per_s", "width_s", "rate"), pa.float64()),
    **dict.fromkeys(("probe", "transitional", "as_sent", "kept", "whole"), pa.bool_()),
    **dict.fromkeys(("parents", "protocols", "groups", "contradicted"), pa.list_(pa.string())),
}


def _schema(names: str, **types: pa.DataType) -> pa.Schema:
    kinds = _TYPES | types
    return pa.schema([(name, kinds.get(name, pa.string())) for name in names.split()])


_HEAD: Final = "protocol group life node step t_us"
EVENTS: Final = SCHEMA
QUARANTINE: Final = _schema("path row reason")
SENDS: Final = _schema(f"{_HEAD} view number service level size digest probe message parents")
DELIVERIES: Final = _schema(
    f"{_HEAD} view view_step source number seq service level size digest sent_us latency_us as_sent"
)
VIEW_ROWS: Final = _schema(
    f"{_HEAD} place view members detail transitional joined left stayed changes"
)
PACKETS: Final = _schema(f"{_HEAD} kind view number peer size digest detail")
VERDICTS: Final = _schema("law verdict")
VIOLATIONS: Final = _schema("law life message other detail")
MEASURES: Final = _schema(
    "protocol node members sent delivered views octets span_us messages_per_s mb_per_s"
    " p50_us p90_us p99_us p999_us max_us packets_out octets_out retransmissions naks drops"
    " token_rotation_p50_us token_rotation_max_us",
    members=pa.int32(),
)
_SURVIVOR: Final = pa.struct(
    [
        ("survivor", pa.string()),
        ("view", pa.string()),
        ("view_us", pa.int64()),
        ("delivery_us", pa.int64()),
    ]
)
RECOVERIES: Final = _schema(
    "protocol group life what at_us survivors recovery_us resumed_us", survivors=pa.list_(_SURVIVOR)
)
STABILITIES: Final = _schema(
    "protocol service stability_us messages", stability_us=pa.int64(), messages=pa.int64()
)
LINKS: Final = _schema(
    "protocol group sender receiver sent again received lost octets min_us p50_us p99_us ahead_us",
    **dict.fromkeys(("again", "received", "min_us", "ahead_us"), pa.int64()),
    lost=pa.float64(),
)
CAUSES: Final = _schema("protocol group node kind reason count", count=pa.int64())
LATENCY_PARTS: Final = _schema(
    "protocol group service messages token_us order_us spread_us stable_us",
    messages=pa.int64(),
    **dict.fromkeys(("token_us", "order_us", "spread_us", "stable_us"), pa.float64()),
)
EXCLUSIONS: Final = _schema(
    "protocol group life survivor view at_us what unforced", unforced=pa.bool_()
)
COMPONENTS: Final = _schema(
    "protocol group view members installed installed_by took_us from_us until_us",
    **dict.fromkeys(("members", "installed", "took_us", "from_us", "until_us"), pa.int64()),
)
_KEYS: Final = "protocol members size"
_WIDE: Final = {"members": pa.int32(), "size": pa.int64()}
LATENCIES: Final = _schema(f"{_KEYS} latency_us deliveries", **_WIDE, deliveries=pa.int64())
LATENCY_CURVES: Final = _schema(
    f"{_KEYS} deliveries quantiles", **_WIDE, deliveries=pa.int64(), quantiles=pa.list_(pa.int64())
)
RATE_CURVES: Final = _schema(
    f"{_KEYS} nodes bin width_s deliveries rate", **_WIDE, deliveries=pa.float64()
)
_COUNTS: Final = (
    "sent delivered views octets span_us packets_out octets_out retransmissions naks drops"
)
SUMMARY_ROWS: Final = _schema(
    f"{_KEYS} runs kept broken {_COUNTS} messages_per_s mb_per_s"
    " p50_us p90_us p99_us p999_us max_us recoveries recovery_p50_us recovery_max_us",
    **_WIDE,
    **dict.fromkeys(("runs", "kept", "broken", "recoveries"), pa.int64()),
    **dict.fromkeys(("recovery_p50_us", "recovery_max_us"), pa.int64()),
)
COMPARED: Final = ("messages_per_s", "p50_us", "p99_us")
FACTORS: Final = _schema(
    "protocol faults nodes messages options runs kept"
    f" {' '.join(f'{name} {name}_ci' for name in COMPARED)}",
    **dict.fromkeys(("nodes", "messages", "runs"), pa.int64()),
    kept=pa.int64(),
    **dict.fromkeys((*COMPARED, *(f"{name}_ci" for name in COMPARED)), pa.float64()),
)
TRENDS: Final = _schema(
    "protocol members day runs kept p50_us messages_per_s mean_us changed",
    **dict.fromkeys(("members", "runs", "kept"), pa.int64()),
    day=pa.date32(),
    **dict.fromkeys(("p50_us", "mean_us"), pa.float64()),
    changed=pa.bool_(),
)
RUN_ROWS: Final = _schema(
    "run protocol protocols groups events quarantined unjudged contradicted files octets kept whole"
    " replay fingerprint asked rows_in recorded part",
    recorded=pa.timestamp("us", "UTC"),
)

SCHEMAS: Final = {
    "bronze/events": EVENTS,
    "bronze/quarantine": QUARANTINE,
    "silver/sends": SENDS,
    "silver/deliveries": DELIVERIES,
    "silver/views": VIEW_ROWS,
    "silver/packets": PACKETS,
    "gold/verdicts": VERDICTS,
    "gold/violations": VIOLATIONS,
    "gold/measures": MEASURES,
    "gold/recoveries": RECOVERIES,
    "gold/stabilities": STABILITIES,
    "gold/links": LINKS,
    "gold/causes": CAUSES,
    "gold/latency_parts": LATENCY_PARTS,
    "gold/exclusions": EXCLUSIONS,
    "gold/components": COMPONENTS,
    "gold/latencies": LATENCIES,
    "gold/latency_curves": LATENCY_CURVES,
    "gold/rate_curves": RATE_CURVES,
    "gold/runs": RUN_ROWS,
    "gold/summary": SUMMARY_ROWS,
    "gold/factors": FACTORS,
    "gold/trends": TRENDS,
}


def with_run(table: str) -> pa.Schema:
    """The columns of a table with the rows of runs, but for the date."""
    return SCHEMAS[table].insert(0, RUN)
