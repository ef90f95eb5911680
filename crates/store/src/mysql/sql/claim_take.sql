-- Takes rows that `claim_pick` or `named_pick` has locked in this transaction, at the time that it told or that of their last
-- change. A number is drawn for the whole claim, and each task has its token made from that. One table and a list: a join would
-- write a table first. `updated_at` is assigned after those that read it: the server goes from left to right. What the row grows
-- by comes out of its reserve, and some of that is left for its end.
UPDATE tasks FORCE INDEX (PRIMARY) SET status = 'RUNNING', lane = NULL, attempt = IF(attempt BETWEEN 0 AND 999999999, attempt, 0) + 1,
    lease_token = LEFT(UNHEX(SHA2(CONCAT(CAST(? AS BINARY(16)), id), 256)), 16), node_id = ?, host = ?,
    started_at = COALESCE(started_at, GREATEST(?, updated_at)), last_attempt_at = GREATEST(?, updated_at),
    updated_at = GREATEST(?, updated_at), version = IF(version BETWEEN 0 AND 999999999999999, version, 0) + 1,
    reserve = LEFT(reserve, 48)
WHERE id IN ({row}?{/row}) AND lane IS NOT NULL
