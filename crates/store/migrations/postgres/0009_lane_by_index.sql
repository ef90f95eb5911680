-- A CHECK is read anew by each statement that writes, which costs a lone submit more than the row; the condition of an index
-- is kept. No row ever stands in this index: one that is about to is refused. The next migration drops the CHECK: an index that is
-- built in a transaction of its own lets others read meanwhile.
CREATE FUNCTION longhaul_refuse_lane(id uuid, status text, lane integer) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'check_violation', TABLE = 'tasks', CONSTRAINT = 'tasks_lane',
        MESSAGE = format('the constraint tasks_lane refuses task %s: %s with the lane %s', id, status, COALESCE(lane::text, 'NULL')),
        DETAIL = 'A task has a lane if it is QUEUED or RETRYING, and else none.',
        HINT = 'Submit with longhaul_submit(); cancel, retry and reschedule through the API or the command line.';
END
$$;

CREATE INDEX tasks_lane ON tasks (longhaul_refuse_lane(id, status, lane))
    WHERE (lane IS NOT NULL) <> (status IN ('QUEUED', 'RETRYING'));
COMMENT ON INDEX tasks_lane IS 'A constraint: refuses tasks that wait outside every lane, or do not wait and have one. Never scanned; do not drop.';
