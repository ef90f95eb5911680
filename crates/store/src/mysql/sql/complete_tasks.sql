-- Ends rows that `complete_find` has locked and checked in this transaction, at the time that it told. Each gets the result
-- that stands where its id stands first.
UPDATE tasks FORCE INDEX (PRIMARY) SET status = 'COMPLETED', result = ELT(FIELD(id, {row}?{/row}), {row}?{/row}),
    result_url = NULL, error = NULL, expires_at = NULL, finished_at = GREATEST(?, updated_at),
    updated_at = GREATEST(?, updated_at), version = version + 1, reserve = NULL
WHERE id IN ({row}?{/row}) AND status = 'RUNNING'
