-- Ends the rows that `complete_find` has checked in this same transaction, which is the only one that writes. The
-- results come as an object by row number: an UPDATE with a FROM clause would copy every row twice.
UPDATE tasks SET status = 'COMPLETED', result = ?3 ->> ('$."' || rowid || '".r'),
    result_url = ?3 ->> ('$."' || rowid || '".u'), error = NULL, expires_at = NULL,
    finished_at = {now}, updated_at = {now}, version = version + 1
WHERE rowid IN (SELECT value FROM json_each(?2)) AND status = 'RUNNING'
