-- Takes rows that `claim_pick` or `named_pick` has locked in this transaction, at the time that it told. A number is drawn for
-- the whole claim, and each task has its token made from that. One table and a list: a join would write a table first.
UPDATE tasks FORCE INDEX (PRIMARY) SET status = 'RUNNING', lane = NULL, attempt = attempt + 1,
    lease_token = LEFT(UNHEX(SHA2(CONCAT(CAST(? AS BINARY(16)), id), 256)), 16), node_id = ?, host = ?,
    started_at = COALESCE(started_at, ?), last_attempt_at = ?, updated_at = ?, version = version + 1
WHERE id IN ({row}?{/row}) AND lane IS NOT NULL
