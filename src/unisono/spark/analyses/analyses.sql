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

-- By pair of nodes: packets, how many of them were lost, and their delay. A packet to all counts for
-- each node that had rows before and after it; one that was sent again counts each time. With clocks that differ,
-- delays differ by the skew: see clock_skew.
CREATE OR REPLACE TEMP VIEW links AS
WITH nodes AS (
    SELECT run, node, life, min(t_us) AS first_us, max(t_us) AS last_us FROM silver_packets GROUP BY run, node, life
), sent AS (
    SELECT p.run, p.protocol, p.node AS sender, n.node AS receiver, count(*) AS sent
    FROM silver_packets p
    LEFT JOIN addresses a ON a.run = p.run AND a.address = p.peer
    JOIN nodes n ON n.run = p.run AND n.node <> p.node AND p.t_us BETWEEN n.first_us AND n.last_us
        AND (p.peer = '*' OR n.node = a.node)
    WHERE p.kind = 'packet_out' GROUP BY p.run, p.protocol, p.node, n.node
), received AS (
    SELECT run, sender, receiver, count(*) AS received, sum(size) AS bytes, min(delay_us) AS min_us,
           percentile_disc(0.5) WITHIN GROUP (ORDER BY delay_us) AS p50_us,
           percentile_disc(0.99) WITHIN GROUP (ORDER BY delay_us) AS p99_us
    FROM hops WHERE sender <> receiver GROUP BY run, sender, receiver
)
SELECT s.run, s.protocol, s.sender, s.receiver, s.sent, coalesce(r.received, 0) AS received,
       greatest(0.0, 1 - coalesce(r.received, 0) / s.sent) AS lost, r.bytes, r.min_us, r.p50_us, r.p99_us
FROM sent s LEFT JOIN received r ON r.run = s.run AND r.sender = s.sender AND r.receiver = s.receiver;

-- By pair of nodes: how far the second's clock is ahead, if the shortest delays are equal both ways.
CREATE OR REPLACE TEMP VIEW clock_skew AS
SELECT there.run, there.sender AS node, there.receiver AS other,
       (there.min_us - back.min_us) / 2 AS ahead_us, (there.min_us + back.min_us) / 2 AS one_way_us
FROM links there JOIN links back
    ON back.run = there.run AND back.sender = there.receiver AND back.receiver = there.sender
WHERE there.sender < there.receiver;

-- Why packets were sent again or dropped: by node, the kind of work and its reason.
CREATE OR REPLACE TEMP VIEW causes AS
SELECT run, protocol, node, kind, coalesce(detail, '') AS reason, sum(number) AS count
FROM silver_packets WHERE kind IN ('nak', 'repair', 'drop')
GROUP BY run, protocol, node, kind, coalesce(detail, '');

-- By message, when it was delivered at its sender (the order is known there), first and last anywhere, since it was sent.
CREATE OR REPLACE TEMP VIEW message_times AS
SELECT run, protocol, group, source, number, count(*) AS deliveries, first(service) AS service,
       min(CASE WHEN life = source THEN latency_us END) AS own_us,
       min(latency_us) AS first_us, max(latency_us) AS last_us
FROM silver_deliveries GROUP BY run, protocol, group, source, number;

-- The latency in parts: until the first member could deliver, until the sender could, and the spread between members.
CREATE OR REPLACE TEMP VIEW latency_parts AS
SELECT run, protocol, service, count(*) AS messages,
       percentile_disc(0.5) WITHIN GROUP (ORDER BY first_us) AS first_p50_us,
       percentile_disc(0.5) WITHIN GROUP (ORDER BY own_us) AS own_p50_us,
       percentile_disc(0.5) WITHIN GROUP (ORDER BY last_us - first_us) AS spread_p50_us,
       percentile_disc(0.99) WITHIN GROUP (ORDER BY last_us) AS last_p99_us
FROM message_times GROUP BY run, protocol, service;

-- Members that others lost from their views although they had neither crashed nor left: excluded for slowness or by a partition.
CREATE OR REPLACE TEMP VIEW exclusions AS
SELECT run, protocol, group, life, what, size(survivors) AS survivors,
       array_min(survivors.view_us) AS excluded_us
FROM gold_recoveries
WHERE what NOT IN ('left', 'crashed') AND (at_us IS NULL OR at_us > array_min(survivors.view_us));

-- The components over time: each view that was installed, by how many, and until when its last member stayed.
CREATE OR REPLACE TEMP VIEW components AS
WITH spans AS (
    SELECT run, protocol, group, view, members, life, t_us,
           lead(t_us) OVER (PARTITION BY run, protocol, group, life ORDER BY place) AS next_us
    FROM silver_views WHERE NOT transitional
)
SELECT run, protocol, group, view, size(first(members)) AS members, count(DISTINCT life) AS installed,
       min(t_us) AS from_us, CASE WHEN count(next_us) = count(*) THEN max(next_us) END AS until_us
FROM spans GROUP BY run, protocol, group, view;

-- The factors of a simulated run as columns, from the command that makes it again.
CREATE OR REPLACE TEMP VIEW factors AS
SELECT r.run, r.protocol, r.kept, r.recorded, to_date(r.recorded) AS day,
       regexp_extract(replay, '--faults (\\S+)', 1) AS faults,
       try_cast(regexp_extract(replay, '--nodes (\\d+)', 1) AS int) AS nodes,
       try_cast(regexp_extract(replay, '--seed (\\d+)', 1) AS bigint) AS seed,
       try_cast(regexp_extract(replay, '--messages (\\d+)', 1) AS int) AS messages,
       array_join(regexp_extract_all(replay, '--option (\\S+)', 1), ' ') AS options,
       m.members, m.sent, m.delivered, m.messages_per_s, m.p50_us, m.p99_us, m.retransmissions
FROM gold_runs r LEFT JOIN gold_measures m ON m.run = r.run AND m.node IS NULL
WHERE r.run <> '(all)';

-- Runs by their factors: means with 95 % confidence intervals.
CREATE OR REPLACE TEMP VIEW by_factor AS
SELECT protocol, faults, nodes, messages, options, count(*) AS runs, count_if(kept) AS kept,
       avg(messages_per_s) AS messages_per_s, 1.96 * stddev(messages_per_s) / sqrt(count(*)) AS messages_per_s_ci,
       avg(p50_us) AS p50_us, 1.96 * stddev(p50_us) / sqrt(count(*)) AS p50_us_ci,
       avg(p99_us) AS p99_us, 1.96 * stddev(p99_us) / sqrt(count(*)) AS p99_us_ci
FROM factors GROUP BY protocol, faults, nodes, messages, options;

-- By protocol and day: how many runs kept their laws, and the median latency; `changed` where it is more than three
-- standard deviations from the seven days before.
CREATE OR REPLACE TEMP VIEW trends AS
WITH days AS (
    SELECT protocol, members, day, count(*) AS runs, count_if(kept) AS kept,
           percentile_disc(0.5) WITHIN GROUP (ORDER BY p50_us) AS p50_us,
           percentile_disc(0.5) WITHIN GROUP (ORDER BY messages_per_s) AS messages_per_s
    FROM factors GROUP BY protocol, members, day
), before AS (
    SELECT *, avg(p50_us) OVER week AS mean_us, stddev(p50_us) OVER week AS deviation_us, count(*) OVER week AS days
    FROM days WINDOW week AS (PARTITION BY protocol, members ORDER BY day ROWS BETWEEN 7 PRECEDING AND 1 PRECEDING)
)
SELECT protocol, members, day, runs, kept, p50_us, messages_per_s, mean_us,
       days >= 3 AND abs(p50_us - mean_us) > 3 * greatest(deviation_us, 0.01 * mean_us) AS changed
FROM before;

-- Latency against load: the runs of one protocol, group size and payload size from the slowest to the fastest.
CREATE OR REPLACE TEMP VIEW capacity AS
SELECT m.protocol, m.members, k.size, m.run, m.messages_per_s, m.mb_per_s, m.p50_us, m.p99_us
FROM gold_measures m
JOIN (SELECT DISTINCT run, protocol, size FROM gold_latency_curves) k ON k.run = m.run AND k.protocol = m.protocol
WHERE m.node IS NULL
