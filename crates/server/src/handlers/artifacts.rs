//! Files that tasks made: their list, and the download by a signed URL.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::Response,
};
use longhaul_api::{ArtifactView, Page};
use longhaul_domain::{StoreError, artifact::ArtifactRecord, ids::ArtifactId};

use crate::{
    api::{Api, PathId, PathText},
    download::{Span, pieces},
    identity::Caller,
    openapi::{Doc, header_parameter, query_parameter},
    problem::ApiError,
    query::Query,
    reply,
};

pub(crate) fn list_doc() -> Doc {
    Doc::new(
        "listArtifacts",
        "The files that a task made, each with a URL to download it",
    )
    .page::<ArtifactView>("All files of the attempts whose result was accepted; there is one page")
}

pub(crate) async fn list(
    State(api): State<Arc<Api>>,
    caller: Caller,
    PathId(id): PathId,
) -> Result<Response, ApiError> {
    let records = api
        .engine
        .store
        .list_artifacts(&caller.access(), id)
        .await?;
    let now = api.engine.store.now().await?;
    let view = |record: ArtifactRecord| {
        let is_there = record.cleaned_at.is_none() && record.expires_at > now;
        let url = is_there
            .then(|| api.files.signer.url(record.id, record.expires_at))
            .transpose();
        url.map(|url| ArtifactView::new(record, url))
            .map_err(StoreError::Unavailable)
    };
    let items = records
        .into_iter()
        .map(view)
        .collect::<Result<Vec<_>, _>>()?;
    Ok(reply::ok(&Page {
        items,
        next_cursor: None,
    }))
}

pub(crate) fn download_doc() -> Doc {
    Doc::new(
        "downloadArtifact",
        "A file, by the signed URL that a task or its list of files gave",
    )
    .parameters(vec![
        query_parameter(
            "expires",
            "Until when the URL is good, in seconds since 1970",
        ),
        query_parameter("signature", "The server's signature of file and time"),
        header_parameter("Range", "One span of bytes, `bytes=0-99`"),
    ])
    .file("The file, or the span of it that was asked for with 206")
    .problems(&[400, 403])
}

pub(crate) async fn download(
    State(api): State<Arc<Api>>,
    PathText(id): PathText,
    query: Query,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let (expires, signature) = query.signature()?;
    // What is no id has no signature either.
    let id = ArtifactId(uuid::Uuid::try_parse(&id).map_err(|_| ApiError::BadSignature)?);
    let now = api.engine.store.now().await?;
    let is_allowed = api
        .files
        .signer
        .allows(id, expires, &signature, now)
        .map_err(StoreError::Unavailable)?;
    if !is_allowed {
        return Err(ApiError::BadSignature);
    }
    let found = api.engine.store.get_artifact(id).await;
    let record = if let Err(StoreError::NotFound) = found {
        return Err(ApiError::NoArtifact);
    } else {
        found?
    };
    if record.cleaned_at.is_some() || record.expires_at <= now {
        return Err(ApiError::NoArtifact);
    }
    let span = Span::of(headers.get(header::RANGE), record.bytes);
    let body = pieces(Arc::clone(&api.files.store), record.key.clone(), span).await?;
    Ok(answer(&record, span, body))
}

/// The file as something to keep, never as a page of this site: whatever it says it is, a browser does not run it.
fn answer(record: &ArtifactRecord, span: Span, body: Body) -> Response {
    let mut response = Response::new(body);
    let is_part = span.length() < record.bytes;
    *response.status_mut() = if is_part {
        StatusCode::PARTIAL_CONTENT
    } else {
        StatusCode::OK
    };
    let headers = response.headers_mut();
    let unknown = HeaderValue::from_static("application/octet-stream");
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_str(&record.content_type).unwrap_or(unknown),
    );
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(span.length()));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("private, no-store"),
    );
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    headers.insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("default-src 'none'; sandbox"),
    );
    headers.insert(
        header::REFERRER_POLICY,
        HeaderValue::from_static("no-referrer"),
    );
    let name = format!(
        "attachment; filename*=UTF-8''{}",
        percent_encoded(&record.file_name)
    );
    let unnamed = HeaderValue::from_static("attachment");
    headers.insert(
        header::CONTENT_DISPOSITION,
        HeaderValue::from_str(&name).unwrap_or(unnamed),
    );
    if is_part && let Ok(range) = HeaderValue::from_str(&span.content_range(record.bytes)) {
        headers.insert(header::CONTENT_RANGE, range);
    }
    response
}

/// As RFC 8187 writes names.
fn percent_encoded(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}
