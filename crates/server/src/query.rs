//! The query string of lists and bulk changes. An unknown name or an invalid value is refused with
//! the ones that are allowed.

use std::str::FromStr;

use axum::{extract::FromRequestParts, http::request::Parts};
use longhaul_api::Moment;
use longhaul_domain::{
    Invalid, QueueName, Status, TaskId, Timestamp,
    filter::{PageRequest, SortOrder, TaskFilter},
};
use utoipa::openapi::{path::Parameter, schema::Object};

use crate::{cursor, openapi::query_parameter, parameter_schemas as schemas, problem::ApiError};

/// Tasks of a page by default.
const PAGE: usize = 50;
/// Tasks of a page at most, which bounds the size of a response with the largest documents.
const LARGEST_PAGE: usize = 200;
/// Parameters in one query string.
const PAIRS: usize = 300;

/// A parameter: its name, its description and its schema.
type Named = (&'static str, &'static str, fn() -> Object);

/// The filters of `GET /api/tasks`.
const FILTERS: [Named; 10] = [
    (
        "status",
        "one or more statuses, separated by commas",
        schemas::statuses,
    ),
    (
        "taskType",
        "one or more types, separated by commas",
        schemas::labels,
    ),
    (
        "queue",
        "one or more queues, separated by commas",
        schemas::labels,
    ),
    (
        "taskKey",
        "the business id that the task was submitted with",
        schemas::name,
    ),
    ("parentTaskId", "children of this task", schemas::uuid),
    (
        "userId",
        "tasks of this user, for administrators",
        schemas::name,
    ),
    (
        "createdAfter",
        "created at this time or later",
        schemas::date_time,
    ),
    (
        "createdBefore",
        "created before this time",
        schemas::date_time,
    ),
    ("dueAfter", "due at this time or later", schemas::date_time),
    ("dueBefore", "due before this time", schemas::date_time),
];
const SORT: Named = (
    "sort",
    "-createdAt for the newest first, createdAt for the oldest first",
    || schemas::one_of(["-createdAt", "createdAt"]),
);
const SIZE: Named = ("size", "items per page: 50 by default, at most 200", || {
    schemas::number_up_to(LARGEST_PAGE)
});
const CURSOR: Named = ("cursor", "nextCursor of the previous page", schemas::text);
const PAGING: [Named; 3] = [SORT, SIZE, CURSOR];

/// A parsed query string.
#[derive(Debug)]
pub(crate) struct Query(Vec<(String, String)>);

impl<S: Send + Sync> FromRequestParts<S> for Query {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        Self::parse(parts.uri.query().unwrap_or(""))
    }
}

/// The refusal of a parameter.
fn refused(invalid: Invalid) -> ApiError {
    bad(invalid.field, invalid.problem, invalid.allowed)
}

fn bad(field: &str, problem: impl Into<String>, allowed: impl Into<String>) -> ApiError {
    ApiError::BadFilter {
        field: field.to_owned(),
        problem: problem.into(),
        allowed: allowed.into(),
    }
}

impl Query {
    fn parse(text: &str) -> Result<Self, ApiError> {
        let parsed = form_urlencoded::parse(text.as_bytes()).into_owned();
        let pairs: Vec<(String, String)> = parsed.take(PAIRS + 1).collect();
        if pairs.len() > PAIRS {
            return Err(bad(
                "query",
                "has too many parameters",
                format!("at most {PAIRS}"),
            ));
        }

        Ok(Self(pairs))
    }

    /// Refuses unknown names: a misspelled filter would match every task.
    fn check_names(&self, known: &[&str]) -> Result<(), ApiError> {
        let mut names = self.0.iter().map(|(name, _)| name.as_str());
        match names.find(|name| !known.contains(name)) {
            None => Ok(()),
            Some(name) => Err(bad(&cut(name), "is not known", known.join(", "))),
        }
    }

    fn one(&self, name: &str) -> Result<Option<&str>, ApiError> {
        let mut values = self.0.iter().filter(|(given, _)| given == name);
        let first = values.next().map(|(_, value)| value.as_str());
        if values.next().is_some() {
            return Err(bad(name, "is given twice", "one value"));
        }
        Ok(first)
    }

    /// All values, repeated or separated by commas.
    fn many(&self, name: &str) -> Vec<&str> {
        let values = self.0.iter().filter(|(given, _)| given == name);
        values.flat_map(|(_, value)| value.split(',')).collect()
    }

    fn read<T: FromStr>(&self, name: &str, allowed: &str) -> Result<Option<T>, ApiError> {
        let parse = |text: &str| {
            text.parse()
                .map_err(|_| bad(name, format!("is {:?}", cut(text)), allowed))
        };
        self.one(name)?.map(parse).transpose()
    }

    pub(crate) fn moment(&self, name: &str) -> Result<Option<Timestamp>, ApiError> {
        let moment: Option<Moment> = self.read(name, "a time as RFC 3339, 2026-03-01T08:30:00Z")?;
        Ok(moment.map(|moment| moment.0))
    }

    /// The filters and the page of a list of tasks.
    pub(crate) fn task_list(
        &self,
        order: SortOrder,
        without: &[&str],
    ) -> Result<(TaskFilter, PageRequest), ApiError> {
        let known: Vec<&str> = names(&FILTERS)
            .chain(names(&PAGING))
            .filter(|name| !without.contains(name))
            .collect();
        self.check_names(&known)?;
        Ok((self.filter()?, self.page(order)?))
    }

    /// The filters of a bulk change, and the cursor to continue from. At least one filter is
    /// required: a forgotten filter must not change every task.
    pub(crate) fn bulk(&self) -> Result<(TaskFilter, Option<TaskId>), ApiError> {
        let known: Vec<&str> = names(&FILTERS).chain(["cursor"]).collect();
        self.check_names(&known)?;
        let filter = self.filter()?;
        if filter == TaskFilter::default() {
            let allowed: Vec<&str> = names(&FILTERS).collect();
            return Err(ApiError::invalid_field(
                "query",
                "names no filter",
                format!("at least one of {}", allowed.join(", ")),
            ));
        }

        let after = self
            .one("cursor")?
            .map(|text| cursor::read_task(SortOrder::OldestFirst, text))
            .transpose()?;
        Ok((filter, after))
    }

    fn filter(&self) -> Result<TaskFilter, ApiError> {
        let statuses = self
            .many("status")
            .into_iter()
            .map(status)
            .collect::<Result<_, _>>()?;
        let listed = |name| self.many(name).into_iter().map(str::to_owned).collect();
        let queues = self.many("queue").into_iter().map(QueueName::parse);
        let parent: Option<uuid::Uuid> = self.read("parentTaskId", "the id of a task")?;

        let filter = TaskFilter {
            owner: self.one("userId")?.map(str::to_owned),
            statuses,
            task_types: listed("taskType"),
            task_key: self.one("taskKey")?.map(str::to_owned),
            parent_id: parent.map(TaskId),
            created_after: self.moment("createdAfter")?,
            created_before: self.moment("createdBefore")?,
            due_after: self.moment("dueAfter")?,
            due_before: self.moment("dueBefore")?,
            queues: queues.collect::<Result<_, _>>().map_err(refused)?,
        };

        filter.check().map_err(refused)?;
        Ok(filter)
    }

    fn page(&self, order: SortOrder) -> Result<PageRequest, ApiError> {
        let order = match self.one("sort")? {
            None => order,
            Some("-createdAt") => SortOrder::NewestFirst,
            Some("createdAt") => SortOrder::OldestFirst,
            Some(other) => {
                return Err(bad(
                    "sort",
                    format!("is {:?}", cut(other)),
                    "-createdAt or createdAt",
                ));
            }
        };

        let after = self
            .one("cursor")?
            .map(|text| cursor::read_task(order, text))
            .transpose()?;

        Ok(PageRequest {
            order,
            after,
            size: self.size()?,
        })
    }

    fn size(&self) -> Result<usize, ApiError> {
        let allowed = format!("1 to {LARGEST_PAGE}");
        let size = self.read("size", &allowed)?.unwrap_or(PAGE);
        if (1..=LARGEST_PAGE).contains(&size) {
            Ok(size)
        } else {
            Err(bad("size", format!("is {size}"), allowed))
        }
    }

    /// The page of a numbered list: attempts or log lines of one task.
    pub(crate) fn numbered(&self) -> Result<(Option<u64>, usize), ApiError> {
        self.check_names(&["size", "cursor"])?;
        let after = self.one("cursor")?.map(cursor::read_number).transpose()?;
        Ok((after, self.size()?))
    }

    /// Expiry and signature of a signed URL. A missing or malformed one is an invalid signature.
    pub(crate) fn signature(&self) -> Result<(i64, String), ApiError> {
        let expires = self.one("expires")?.and_then(|text| text.parse().ok());
        let expires = expires.ok_or(ApiError::BadSignature)?;
        let signature = self.one("signature")?.ok_or(ApiError::BadSignature)?;
        Ok((expires, signature.to_owned()))
    }

    /// The time span of statistics.
    pub(crate) fn span(&self) -> Result<(Option<Timestamp>, Option<Timestamp>), ApiError> {
        self.check_names(&["from", "to"])?;
        Ok((self.moment("from")?, self.moment("to")?))
    }
}

fn names(of: &'static [Named]) -> impl Iterator<Item = &'static str> {
    of.iter().map(|(name, ..)| *name)
}

fn status(text: &str) -> Result<Status, ApiError> {
    let known = || Status::ALL.map(Status::as_str).join(", ");
    Status::parse(text).ok_or_else(|| bad("status", format!("is {:?}", cut(text)), known()))
}

fn cut(text: &str) -> String {
    text.chars().take(60).collect()
}

/// The parameters of lists in the OpenAPI document.
pub(crate) fn list_parameters(without: &[&str]) -> Vec<Parameter> {
    let all = FILTERS.iter().chain(&PAGING);
    let shown = all.filter(|(name, ..)| !without.contains(name));
    shown.map(parameter).collect()
}

pub(crate) fn bulk_parameters() -> Vec<Parameter> {
    FILTERS.iter().chain([&CURSOR]).map(parameter).collect()
}

pub(crate) fn numbered_parameters() -> Vec<Parameter> {
    [&SIZE, &CURSOR].map(parameter).into()
}

fn parameter((name, what, schema): &Named) -> Parameter {
    query_parameter(name, what, schema())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> Result<(TaskFilter, PageRequest), ApiError> {
        Query::parse(text)?.task_list(SortOrder::NewestFirst, &[])
    }

    #[test]
    fn filter_values_may_be_repeated_or_separated_by_commas() {
        let (filter, page) =
            list("status=QUEUED,RUNNING&status=FAILED&taskType=a&taskKey=b%20c&size=7").unwrap();
        assert_eq!(
            filter.statuses,
            [Status::Queued, Status::Running, Status::Failed]
        );
        assert_eq!(
            (filter.task_types, filter.task_key.as_deref()),
            (vec!["a".to_owned()], Some("b c"))
        );

        assert_eq!((page.size, page.order), (7, SortOrder::NewestFirst));
        let (filter, _) =
            list("createdAfter=2026-03-01T08:30:00Z&dueBefore=2026-03-02T00:00:00%2B02:00")
                .unwrap();
        assert!(filter.created_after.is_some() && filter.due_before.is_some());
    }

    #[test]
    fn an_invalid_parameter_is_refused_by_name() {
        for (text, field) in [
            ("stauts=QUEUED", "stauts"),
            ("status=queued", "status"),
            ("status=", "status"),
            ("size=0", "size"),
            ("size=201", "size"),
            ("size=x", "size"),
            ("size=1&size=2", "size"),
            ("sort=priority", "sort"),
            ("parentTaskId=7", "parentTaskId"),
            ("createdAfter=yesterday", "createdAfter"),
            ("taskType=a%27b", "taskType"),
            ("taskKey=", "taskKey"),
        ] {
            let refused = list(text).unwrap_err().problem();
            assert_eq!(
                (refused.status, refused.field.as_deref()),
                (400, Some(field)),
                "{text}"
            );
        }

        assert_eq!(
            list("cursor=zzz").unwrap_err().problem().code,
            "invalid_cursor"
        );
    }

    #[test]
    fn a_bulk_change_needs_a_filter() {
        assert!(Query::parse("status=FAILED").unwrap().bulk().is_ok());

        let refused = Query::parse("").unwrap().bulk().unwrap_err();
        assert_eq!(refused.problem().status, 422);
    }
}
