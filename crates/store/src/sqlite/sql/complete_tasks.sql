-- Ends the row that `complete_find` has checked in this same transaction, which is the only one that writes.
UPDATE tasks SET status = 'COMPLETED', result = ?3, result_url = ?4, error = NULL, expires_at = NULL,
    finished_at = {now}, updated_at = {now}, version = version + 1
WHERE rowid = ?2 AND status = 'RUNNING'
