//! Cursors: opaque texts that say where a page ends.

use longhaul_domain::{TaskId, filter::SortOrder};
use uuid::Uuid;

use crate::problem::ApiError;

/// A position in a list of tasks. It is invalid in a list of the other order.
pub(crate) fn of_task(order: SortOrder, id: TaskId) -> String {
    format!("{}{}", mark(order), id.0.simple())
}

pub(crate) fn read_task(order: SortOrder, cursor: &str) -> Result<TaskId, ApiError> {
    let rest = cursor
        .strip_prefix(mark(order))
        .filter(|rest| rest.len() == 32)
        .ok_or(ApiError::BadCursor)?;
    Uuid::try_parse(rest)
        .map(TaskId)
        .map_err(|_| ApiError::BadCursor)
}

/// A position among the numbered attempts or log lines of one task.
pub(crate) fn of_number(number: u64) -> String {
    format!("l{number:016x}")
}

pub(crate) fn read_number(cursor: &str) -> Result<u64, ApiError> {
    let rest = cursor
        .strip_prefix('l')
        .filter(|rest| rest.len() == 16 && rest.bytes().all(|byte| byte.is_ascii_hexdigit()))
        .ok_or(ApiError::BadCursor)?;

    // Stores hold signed numbers.
    let number = u64::from_str_radix(rest, 16)
        .ok()
        .filter(|number| i64::try_from(*number).is_ok());

    number.ok_or(ApiError::BadCursor)
}

const fn mark(order: SortOrder) -> &'static str {
    match order {
        SortOrder::NewestFirst => "n",
        SortOrder::OldestFirst => "o",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_valid_in_its_own_list_only() {
        let id = TaskId(Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0001));
        let cursor = of_task(SortOrder::OldestFirst, id);
        assert_eq!(read_task(SortOrder::OldestFirst, &cursor).unwrap(), id);
        assert!(read_task(SortOrder::NewestFirst, &cursor).is_err());
        assert_eq!(read_number(&of_number(77)).unwrap(), 77);

        for bad in [
            "",
            "n",
            "nx",
            "l",
            "l+000000000000001",
            "lffffffffffffffff",
            &cursor[1..],
        ] {
            assert!(
                read_task(SortOrder::NewestFirst, bad).is_err() && read_number(bad).is_err(),
                "{bad}"
            );
        }
    }
}
