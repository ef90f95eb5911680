//! Novels: import, list, read, remove.

use std::sync::Arc;

use axum::{
    extract::{FromRequest as _, Request, State},
    http::{HeaderMap, StatusCode, header},
    response::Response,
};
use longhaul::server::{ApiError, Caller, JsonBody, NoBody, TextBody, accepted, ok};
use serde::{Deserialize, Serialize};

use super::{Application, NovelPath, Params, novel_id, of_caller, told};
use crate::{
    SAMPLE, SAMPLE_TITLE,
    library::{NewNovel, NovelCard},
    splitting::{SCENES, TITLE_CHARACTERS, split},
    tasks::{ImportNovel, ImportOrder},
};

/// Novels on a page, and the most of them.
const PAGE: usize = 20;
const PAGE_MOST: usize = 100;
/// The caller's word for an import, in bytes.
const IMPORT_KEY_BYTES: usize = 200;

/// A novel as JSON; as plain text it is the body alone, and the title is in the query.
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
    /// For `before`, if there are more.
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
        // Whoever sends a file says nothing of JSON; what they meant is text.
        let body = JsonBody::from_request(request, &()).await;
        body.map_err(|error| {
            if matches!(error, ApiError::NotJsonType) {
                ApiError::NotTextType
            } else {
                error
            }
        })?
        .0
    };
    let title = title.or(query.title).unwrap_or_else(|| first_line(&text));
    submit(&application, &caller, &headers, &title, &text).await
}

pub(super) async fn import_sample(
    State(application): State<Arc<Application>>,
    caller: Caller,
    headers: HeaderMap,
    _: NoBody,
) -> Result<Response, ApiError> {
    submit(&application, &caller, &headers, SAMPLE_TITLE, SAMPLE).await
}

/// Rows and task are committed together: there is no novel without an import, and no import without a novel.
async fn submit(
    application: &Application,
    caller: &Caller,
    headers: &HeaderMap,
    title: &str,
    source: &str,
) -> Result<Response, ApiError> {
    check(title, source)?;
    let (id, key) = (uuid::Uuid::now_v7().to_string(), import_key(headers)?);
    let order = ImportOrder {
        novel_id: id.clone(),
    };
    let task = of_caller(
        caller,
        &id,
        application.longhaul.submit::<ImportNovel>(order),
    );
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
        .map_err(told)?;
    application.longhaul.wake();
    Ok(accepted(
        &format!("/api/tasks/{}", imported.task_id),
        &imported,
    ))
}

fn check(title: &str, source: &str) -> Result<(), ApiError> {
    let characters = title.chars().count();
    if title.trim().is_empty() || characters > TITLE_CHARACTERS {
        let problem = format!("has {characters} characters");
        return Err(ApiError::unfit(
            "title",
            problem,
            format!("1 to {TITLE_CHARACTERS} characters"),
        ));
    }
    if source.contains('\0') {
        return Err(ApiError::unfit(
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
        return Err(ApiError::unfit(
            "text",
            format!("has {scenes} scenes"),
            format!("1 to {SCENES} scenes"),
        ));
    }
    Ok(())
}

/// The same key from the same caller is the same import.
fn import_key(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let Some(value) = headers.get("idempotency-key") else {
        return Ok(None);
    };
    let text = value
        .to_str()
        .ok()
        .filter(|text| !text.trim().is_empty() && text.len() <= IMPORT_KEY_BYTES);
    let unfit = || {
        let allowed = format!("1 to {IMPORT_KEY_BYTES} visible ASCII characters");
        ApiError::unfit("Idempotency-Key", "is empty, too long or not text", allowed)
    };
    Ok(Some(text.ok_or_else(unfit)?.to_owned()))
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
        let (field, problem) = ("size".to_owned(), format!("is {size}"));
        return Err(ApiError::BadFilter {
            field,
            problem,
            allowed: format!("1 to {PAGE_MOST}"),
        });
    }
    let before = query.before.as_deref().map(novel_id).transpose()?;
    // One more than asked for tells whether there is a next page.
    let found = application
        .library
        .novels(caller.owner(), before.as_deref(), size + 1)
        .await;
    let mut items = found.map_err(told)?;
    let has_more = items.len() > size;
    items.truncate(size);
    let next = items
        .last()
        .filter(|_| has_more)
        .map(|last| last.novel_id.clone());
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
        .map_err(told)?;
    Ok(ok(&found.ok_or(ApiError::Missing("novel"))?))
}

pub(super) async fn delete(
    State(application): State<Arc<Application>>,
    caller: Caller,
    NovelPath(novel): NovelPath,
    _: NoBody,
) -> Result<StatusCode, ApiError> {
    let is_deleted = application
        .library
        .delete(caller.owner(), &novel)
        .await
        .map_err(told)?;
    if is_deleted {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(ApiError::Missing("novel"))
    }
}
