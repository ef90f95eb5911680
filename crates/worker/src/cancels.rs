//! The cancels that are under way in this process. Of several of one task only one may call its hook, and the store answers
//! all of them alike.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use longhaul_domain::TaskId;

#[derive(Debug, Default)]
struct UnderWay {
    callers: usize,
    is_told: bool,
}

/// See the module. It holds as many tasks as are being cancelled now.
#[derive(Debug, Default)]
pub(crate) struct Cancels(Mutex<HashMap<TaskId, UnderWay>>);

impl Cancels {
    /// Before the first look at the task: who begins after all others are through sees that it has ended.
    pub(crate) fn begin(&self, id: TaskId) -> Cancel<'_> {
        self.all().entry(id).or_default().callers += 1;
        Cancel { all: self, id }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<TaskId, UnderWay>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of them.
pub(crate) struct Cancel<'a> {
    all: &'a Cancels,
    id: TaskId,
}

impl Cancel<'_> {
    /// Whether none of those that are under way beside this one has asked before.
    pub(crate) fn is_first_to_tell(&self) -> bool {
        self.all.all().get_mut(&self.id).is_some_and(|task| !std::mem::replace(&mut task.is_told, true))
    }
}

impl Drop for Cancel<'_> {
    fn drop(&mut self) {
        let mut all = self.all.all();
        if let Some(task) = all.get_mut(&self.id) {
            task.callers -= 1;
            if task.callers == 0 {
                all.remove(&self.id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_the_cancels_of_a_task_that_overlap_one_tells_and_nothing_is_left_of_them() {
        let (cancels, id) = (Cancels::default(), TaskId(uuid::Uuid::nil()));
        let (first, second) = (cancels.begin(id), cancels.begin(id));
        assert!(second.is_first_to_tell() && !first.is_first_to_tell());
        drop(second);
        let third = cancels.begin(id);
        drop(first);
        assert!(!third.is_first_to_tell());
        drop(third);
        assert!(cancels.all().is_empty());
        assert!(cancels.begin(id).is_first_to_tell());
    }
}
