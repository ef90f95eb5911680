//! The query string of lists and bulk changes: closed names, closed values, and a refusal that says which are known.

use std::str::FromStr;

use axum::{extract::FromRequestParts, http::request::Parts};
use longhaul_api::Moment;
use longhaul_domain::{
    Invalid, Status, TaskId, Timestamp,
    filter::{PageRequest, SortOrder, TaskFilter},
};
use utoipa::openapi::path::Parameter;

use crate::{cursor, openapi::query_parameter, problem::ApiError, shapes::LARGEST_PAGE};

/// Tasks of a page when nobody says how many.
const PAGE: usize = 50;
/// Parameters in one query string.
const PAIRS: usize = 300;

/// The filters of `GET /api/tasks`, each with what it is for.
const FILTERS: [(&str, &str); 10] = [
    ("status", "one or more of the statuses, separated by commas"),
    ("taskType", "one or more types, separated by commas"),
    ("queue", "one or more queues, separated by commas"),
    (
        "taskKey",
        "the business id that the task was submitted with",
    ),
    ("parentTaskId", "children of this task"),
    ("userId", "tasks of this user, for administrators"),
    ("createdAfter", "created at this moment or later"),
    ("createdBefore", "created before this moment"),
    ("dueAfter", "due at this moment or later"),
    ("dueBefore", "due before this moment"),
];
const PAGING: [(&str, &str); 3] = [
    (
        "sort",
        "-createdAt for the newest first, createdAt for the oldest",
    ),
    ("size", "how many, 50 if nothing is said, 200 at most"),
    ("cursor", "nextCursor of the page before"),
];

/// A query string, taken apart.
#[derive(Debug)]
pub(crate) struct Query(Vec<(String, String)>);

impl<S: Send + Sync> FromRequestParts<S> for Query {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        Self::parse(parts.uri.query().unwrap_or(""))
    }
}

/// What a list parameter is allowed to be.
fn bad(field: &str, problem: impl Into<String>, allowed: impl Into<String>) -> ApiError {
    ApiError::BadFilter {
        field: field.to_owned(),
        problem: problem.into(),
        allowed: allowed.into(),
    }
}

impl Query {
    fn parse(text: &str) -> Result<Self, ApiError> {
        let pairs: Vec<(String, String)> = form_urlencoded::parse(text.as_bytes())
            .into_owned()
            .take(PAIRS + 1)
            .collect();
        if pairs.len() > PAIRS {
            return Err(bad(
                "query",
                "has too many parameters",
                format!("at most {PAIRS}"),
            ));
        }
        Ok(Self(pairs))
    }

    /// Refuses names that the call does not know: a filter that is misspelled would match everything.
    fn check_names(&self, known: &[&str]) -> Result<(), ApiError> {
        match self
            .0
            .iter()
            .find(|(name, _)| !known.contains(&name.as_str()))
        {
            None => Ok(()),
            Some((name, _)) => {
                let shown: String = name.chars().take(60).collect();
                Err(bad(&shown, "is not known", known.join(", ")))
            }
        }
    }

    fn one(&self, name: &str) -> Result<Option<&str>, ApiError> {
        let mut values = self
            .0
            .iter()
            .filter(|(given, _)| given == name)
            .map(|(_, value)| value.as_str());
        let first = values.next();
        if values.next().is_some() {
            return Err(bad(name, "is given twice", "one value"));
        }
        Ok(first)
    }

    /// Every value, whether the name is repeated or the values are separated by commas.
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

    /// The filters of a bulk change, and where it goes on. At least one is needed: a forgotten filter must not be the
    /// end of everything.
    pub(crate) fn bulk(&self) -> Result<(TaskFilter, Option<TaskId>), ApiError> {
        let known: Vec<&str> = names(&FILTERS).chain(["cursor"]).collect();
        self.check_names(&known)?;
        let filter = self.filter()?;
        if filter == TaskFilter::default() {
            let allowed: Vec<&str> = names(&FILTERS).collect();
            return Err(ApiError::unfit(
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
        let parent: Option<uuid::Uuid> = self.read("parentTaskId", "the id of a task")?;
        let filter = TaskFilter {
            owner: self.one("userId")?.map(str::to_owned),
            statuses,
            task_types: listed("taskType"),
            queues: listed("queue"),
            task_key: self.one("taskKey")?.map(str::to_owned),
            parent_id: parent.map(TaskId),
            created_after: self.moment("createdAfter")?,
            created_before: self.moment("createdBefore")?,
            due_after: self.moment("dueAfter")?,
            due_before: self.moment("dueBefore")?,
        };
        filter.check().map_err(
            |Invalid {
                 field,
                 problem,
                 allowed,
             }| bad(field, problem, allowed),
        )?;
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

    /// The page of a list of numbered things of one task.
    pub(crate) fn numbered(&self) -> Result<(Option<u64>, usize), ApiError> {
        self.check_names(&["size", "cursor"])?;
        Ok((
            self.one("cursor")?.map(cursor::read_number).transpose()?,
            self.size()?,
        ))
    }

    /// What a signed URL carries. What is missing or no number is like a wrong signature.
    pub(crate) fn signature(&self) -> Result<(i64, String), ApiError> {
        let expires = self
            .one("expires")?
            .and_then(|text| text.parse().ok())
            .ok_or(ApiError::BadSignature)?;
        let signature = self.one("signature")?.ok_or(ApiError::BadSignature)?;
        Ok((expires, signature.to_owned()))
    }

    /// The span of statistics.
    pub(crate) fn span(&self) -> Result<(Option<Timestamp>, Option<Timestamp>), ApiError> {
        self.check_names(&["from", "to"])?;
        Ok((self.moment("from")?, self.moment("to")?))
    }
}

fn names(of: &'static [(&'static str, &'static str)]) -> impl Iterator<Item = &'static str> {
    of.iter().map(|(name, _)| *name)
}

fn status(text: &str) -> Result<Status, ApiError> {
    let known = || Status::ALL.map(Status::as_str).join(", ");
    Status::parse(text).ok_or_else(|| bad("status", format!("is {:?}", cut(text)), known()))
}

fn cut(text: &str) -> String {
    text.chars().take(60).collect()
}

/// The parameters as the OpenAPI document tells them.
pub(crate) fn list_parameters(without: &[&str]) -> Vec<Parameter> {
    let told = FILTERS
        .iter()
        .chain(&PAGING)
        .filter(|(name, _)| !without.contains(name));
    told.map(|(name, what)| query_parameter(name, what))
        .collect()
}

pub(crate) fn bulk_parameters() -> Vec<Parameter> {
    let told = FILTERS.iter().chain(&PAGING[2..]);
    told.map(|(name, what)| query_parameter(name, what))
        .collect()
}

pub(crate) fn numbered_parameters() -> Vec<Parameter> {
    PAGING[1..]
        .iter()
        .map(|(name, what)| query_parameter(name, what))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> Result<(TaskFilter, PageRequest), ApiError> {
        Query::parse(text)?.task_list(SortOrder::NewestFirst, &[])
    }

    #[test]
    fn filters_are_read_repeated_or_by_commas() {
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
    fn what_does_not_fit_is_refused_by_name() {
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
            let told = list(text).unwrap_err().problem();
            assert_eq!(
                (told.status, told.field.as_deref()),
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
        assert_eq!(
            Query::parse("")
                .unwrap()
                .bulk()
                .unwrap_err()
                .problem()
                .status,
            422
        );
    }
}
