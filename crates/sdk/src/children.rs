//! The children of a parent, as its finish step sees them.

use longhaul_domain::{
    Json, Status, StoreError, TaskId, TaskRecord, bounds,
    contract::store::{Access, TaskReads},
    filter::{PageRequest, SortOrder, TaskFilter},
};

use crate::{stop::Stop, task::Task};

/// A child that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Child {
    /// Its id.
    pub id: TaskId,
    /// The name of its type.
    pub task_type: String,
    /// The business id that it was submitted with.
    pub task_key: Option<String>,
    /// How it ended.
    pub status: Status,
    /// Its result. [`Self::result`] reads it as the type's `Output`.
    pub result: Option<Json>,
    /// Why it did not complete.
    pub error: Option<String>,
}

impl Child {
    /// The result of a child that completed. `None` for any other child.
    pub fn result<C: Task>(&self) -> Result<Option<C::Output>, Stop> {
        let read = self.result.as_ref().map(Json::read).transpose();
        read.map_err(|error| Stop::invalid("invalid_result", error))
    }
}

impl From<TaskRecord> for Child {
    fn from(task: TaskRecord) -> Self {
        Self {
            id: task.id,
            task_type: task.task_type,
            task_key: task.task_key,
            status: task.status,
            result: task.result,
            error: task.error.map(|error| error.message),
        }
    }
}

/// All children, in the order in which they were submitted.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Children {
    /// Each child, with how it ended.
    pub all: Vec<Child>,
}

impl Children {
    /// The children that completed.
    pub fn completed(&self) -> impl Iterator<Item = &Child> {
        self.all
            .iter()
            .filter(|child| child.status == Status::Completed)
    }

    /// The children that did not complete, for any reason.
    pub fn failed(&self) -> impl Iterator<Item = &Child> {
        self.all
            .iter()
            .filter(|child| child.status != Status::Completed)
    }

    /// The results of the children that completed.
    pub fn results<C: Task>(&self) -> Result<Vec<C::Output>, Stop> {
        let mut results = Vec::new();
        for child in self.completed() {
            results.extend(child.result::<C>()?);
        }
        Ok(results)
    }

    /// Loads the children of this task, a page at a time.
    pub async fn load(store: &dyn TaskReads, parent: TaskId) -> Result<Self, StoreError> {
        let filter = TaskFilter {
            parent_id: Some(parent),
            ..TaskFilter::default()
        };
        let mut page = PageRequest {
            order: SortOrder::OldestFirst,
            ..PageRequest::first(bounds::PAGE_SIZE)
        };
        let mut all = Vec::new();

        loop {
            let found = store.list_tasks(&Access::All, &filter, &page).await?;
            all.extend(found.items.into_iter().map(Child::from));

            match found.next {
                Some(next) => page.after = Some(next),
                None => return Ok(Self { all }),
            }
        }
    }
}
