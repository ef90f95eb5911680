-- Ends the row that `complete_find` has checked in this same transaction, which is the only one that writes.
UPDATE tasks SET status = 'COMPLETED', result = ?3, result_url = ?4, error = NULL, expires_at = NULL,
    finished_at = max({now}, updated_at), updated_at = max({now}, updated_at), version = version + 1
WHERE rowid = ?2 AND status = 'RUNNING'
