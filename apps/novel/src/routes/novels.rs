//! Routes for novels: import, list, read, delete.

use std::sync::Arc;

use axum::{
    extract::{FromRequest as _, Request, State},
    http::{HeaderMap, StatusCode, header},
    response::Response,
};
use longhaul::server::{ApiError, Caller, EmptyBody, JsonBody, TextBody, accepted, ok};
use serde::{Deserialize, Serialize};

use super::{Application, NovelPath, Params, api_error, for_caller, novel_id};
use crate::{
    SAMPLE, SAMPLE_TITLE,
    library::{NewNovel, NovelCard},
    splitting::{SCENES, TITLE_CHARACTERS, split},
    tasks::{ImportNovel, ImportParams},
};

/// How many novels a page has, by default and at most.
const PAGE: usize = 20;
const PAGE_MOST: usize = 100;
/// The longest import key.
const IMPORT_KEY_BYTES: usize = 200;

/// A novel as JSON. A plain text body has only the text, and the title is in the query.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NovelBody {
    title: Option<String>,
    text: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ImportQuery {
    title: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    before: Option<String>,
    size: Option<usize>,
}

/// A page of novels, newest first.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct NovelPage {
    items: Vec<NovelCard>,
    /// The value of `before` for the next page, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

pub(super) async fn import(
    State(application): State<Arc<Application>>,
    caller: Caller,
    Params(query): Params<ImportQuery>,
    request: Request,
) -> Result<Response, ApiError> {
    let headers = request.headers().clone();
    let NovelBody { title, text } = if is_text(&headers) {
        NovelBody {
            title: None,
            text: TextBody::from_request(request, &()).await?.0,
        }
    } else {
        let body = JsonBody::from_request(request, &()).await;
        let body = body.map_err(|error| {
            // Most callers without a JSON body meant to send a text.
            if matches!(error, ApiError::NotJsonType) {
                ApiError::NotTextType
            } else {
                error
            }
        });
        body?.0
    };

    let title = title.or(query.title).unwrap_or_else(|| first_line(&text));
    submit(&application, &caller, &headers, &title, &text).await
}

pub(super) async fn import_sample(
    State(application): State<Arc<Application>>,
    caller: Caller,
    headers: HeaderMap,
    _: EmptyBody,
) -> Result<Response, ApiError> {
    submit(&application, &caller, &headers, SAMPLE_TITLE, SAMPLE).await
}

/// Commits rows and task together: there is no novel without an import, and no import without a
/// novel.
async fn submit(
    application: &Application,
    caller: &Caller,
    headers: &HeaderMap,
    title: &str,
    source: &str,
) -> Result<Response, ApiError> {
    check(title, source)?;
    let id = uuid::Uuid::now_v7().to_string();
    let key = import_key(headers)?;
    let params = ImportParams {
        novel_id: id.clone(),
    };
    let task = application.longhaul.submit::<ImportNovel>(params);
    let task = for_caller(caller, &id, task);

    let novel = NewNovel {
        id: &id,
        owner: caller.owner(),
        title,
        source,
        import_key: key.as_deref(),
    };
    let imported = application
        .library
        .import(&novel, &application.longhaul, task)
        .await
        .map_err(api_error)?;

    // Without the wake-up, the worker finds the task only at its next poll.
    application.longhaul.wake();
    let location = format!("/api/tasks/{}", imported.task_id);
    Ok(accepted(&location, &imported))
}

fn check(title: &str, source: &str) -> Result<(), ApiError> {
    let characters = title.chars().count();
    if title.trim().is_empty() || characters > TITLE_CHARACTERS {
        let problem = format!("has {characters} characters");
        return Err(ApiError::invalid_field(
            "title",
            problem,
            format!("1 to {TITLE_CHARACTERS} characters"),
        ));
    }

    if source.contains('\0') {
        return Err(ApiError::invalid_field(
            "text",
            "has a NUL character",
            "text without it",
        ));
    }

    let scenes: usize = split(source)
        .iter()
        .map(|chapter| chapter.scenes.len())
        .sum();
    if scenes == 0 || scenes > SCENES {
        return Err(ApiError::invalid_field(
            "text",
            format!("has {scenes} scenes"),
            format!("1 to {SCENES} scenes"),
        ));
    }

    Ok(())
}

/// The key of an import. A caller that repeats it gets the same import.
fn import_key(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let Some(value) = headers.get("idempotency-key") else {
        return Ok(None);
    };
    let text = value
        .to_str()
        .ok()
        .filter(|text| !text.trim().is_empty() && text.len() <= IMPORT_KEY_BYTES);

    match text {
        Some(text) => Ok(Some(text.to_owned())),
        None => Err(ApiError::invalid_field(
            "Idempotency-Key",
            "is empty, too long or not text",
            format!("1 to {IMPORT_KEY_BYTES} visible ASCII characters"),
        )),
    }
}

fn is_text(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    kind.trim().to_ascii_lowercase().starts_with("text/plain")
}

fn first_line(text: &str) -> String {
    let line = text
        .lines()
        .map(|line| line.trim().trim_start_matches('#').trim())
        .find(|line| !line.is_empty());
    line.unwrap_or("Untitled")
        .chars()
        .take(TITLE_CHARACTERS)
        .collect()
}

pub(super) async fn list(
    State(application): State<Arc<Application>>,
    caller: Caller,
    Params(query): Params<ListQuery>,
) -> Result<Response, ApiError> {
    let size = query.size.unwrap_or(PAGE);
    if !(1..=PAGE_MOST).contains(&size) {
        return Err(ApiError::BadFilter {
            field: "size".to_owned(),
            problem: format!("is {size}"),
            allowed: format!("1 to {PAGE_MOST}"),
        });
    }

    let before = query.before.as_deref().map(novel_id).transpose()?;

    // One more novel than requested shows whether there is a next page.
    let found = application
        .library
        .novels(caller.owner(), before.as_deref(), size + 1)
        .await;
    let mut items = found.map_err(api_error)?;
    let has_more = items.len() > size;
    items.truncate(size);

    let mut next = None;
    if has_more && let Some(last) = items.last() {
        next = Some(last.novel_id.clone());
    }

    Ok(ok(&NovelPage { items, next }))
}

pub(super) async fn read(
    State(application): State<Arc<Application>>,
    caller: Caller,
    NovelPath(novel): NovelPath,
) -> Result<Response, ApiError> {
    let found = application
        .library
        .novel(caller.owner(), &novel)
        .await
        .map_err(api_error)?;
    Ok(ok(&found.ok_or(ApiError::Missing("novel"))?))
}

pub(super) async fn delete(
    State(application): State<Arc<Application>>,
    caller: Caller,
    NovelPath(novel): NovelPath,
    _: EmptyBody,
) -> Result<StatusCode, ApiError> {
    let is_deleted = application
        .library
        .delete(caller.owner(), &novel)
        .await
        .map_err(api_error)?;
    if is_deleted {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(ApiError::Missing("novel"))
    }
}
