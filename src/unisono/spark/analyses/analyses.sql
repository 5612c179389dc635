-- Views over the tables of `unisono pipeline`, in Spark SQL. Those about packets need traces made with --detail.

-- Which node has which address: the one that sent most of the packets received from there.
CREATE OR REPLACE TEMP VIEW addresses AS
WITH sent AS (
    SELECT DISTINCT run, node, digest FROM silver_packets WHERE kind = 'packet_out'
), matched AS (
    SELECT p.run, p.peer AS address, s.node, count(*) AS packets
    FROM silver_packets p JOIN sent s ON s.run = p.run AND s.digest = p.digest AND s.node <> p.node
    WHERE p.kind = 'packet_in' GROUP BY p.run, p.peer, s.node
)
SELECT run, address, max_by(node, packets) AS node FROM matched GROUP BY run, address;

-- Each packet that a node received. The delay is known of packets that were sent once.
CREATE OR REPLACE TEMP VIEW hops AS
WITH sent AS (
    SELECT run, node, digest, min(t_us) AS t_us, count(*) AS times
    FROM silver_packets WHERE kind = 'packet_out' GROUP BY run, node, digest
)
SELECT p.run, p.protocol, a.node AS sender, p.node AS receiver, p.life AS receiver_life, p.step, p.t_us,
       p.size, p.digest, p.detail, CASE WHEN s.times = 1 THEN p.t_us - s.t_us END AS delay_us
FROM silver_packets p
JOIN addresses a ON a.run = p.run AND a.address = p.peer
LEFT JOIN sent s ON s.run = p.run AND s.node = a.node AND s.digest = p.digest
WHERE p.kind = 'packet_in';

-- By message, when it was delivered at its sender (the order is known there), first and last anywhere, since it was sent.
CREATE OR REPLACE TEMP VIEW message_times AS
SELECT run, protocol, group, source, number, count(*) AS deliveries, first(service) AS service,
       min(CASE WHEN life = source THEN latency_us END) AS own_us,
       min(latency_us) AS first_us, max(latency_us) AS last_us
FROM silver_deliveries GROUP BY run, protocol, group, source, number;

-- The factors of a simulated run as columns, from the command that makes it again.
CREATE OR REPLACE TEMP VIEW run_factors AS
SELECT r.run, r.protocol, r.kept, r.recorded, to_date(r.recorded) AS day,
       regexp_extract(replay, '--faults (\\S+)', 1) AS faults,
       try_cast(regexp_extract(replay, '--nodes (\\d+)', 1) AS int) AS nodes,
       try_cast(regexp_extract(replay, '--seed (\\d+)', 1) AS bigint) AS seed,
       try_cast(regexp_extract(replay, '--messages (\\d+)', 1) AS int) AS messages,
       array_join(regexp_extract_all(replay, '--option (\\S+)', 1), ' ') AS options,
       m.members, m.sent, m.delivered, m.messages_per_s, m.p50_us, m.p99_us, m.retransmissions
FROM gold_runs r LEFT JOIN gold_measures m ON m.run = r.run AND m.node IS NULL;

-- Latency against load: the runs of one protocol, group size and payload size from the slowest to the fastest.
CREATE OR REPLACE TEMP VIEW capacity AS
SELECT m.protocol, m.members, k.size, m.run, m.messages_per_s, m.mb_per_s, m.p50_us, m.p99_us
FROM gold_measures m
JOIN (SELECT DISTINCT run, protocol, size FROM gold_latency_curves) k ON k.run = m.run AND k.protocol = m.protocol
WHERE m.node IS NULL
