//! Files of tasks: the list, and the download by a signed URL.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::Response,
};
use longhaul_api::{ArtifactView, Page};
use longhaul_domain::{StoreError, Timestamp, artifact::ArtifactRecord, ids::ArtifactId};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::{
    api::{Api, PathId, PathText},
    download::{Span, pieces},
    identity::Caller,
    openapi::{Doc, header_parameter, query_parameter},
    parameter_schemas,
    problem::ApiError,
    query::Query,
    reply,
};

pub(crate) fn list_doc() -> Doc {
    Doc::new(
        "listArtifacts",
        "Lists the files of a task, each with a download URL",
    )
    .page::<ArtifactView>("All files of the accepted attempts, in one page")
}

pub(crate) async fn list(
    State(api): State<Arc<Api>>,
    caller: Caller,
    PathId(id): PathId,
) -> Result<Response, ApiError> {
    let store = api.engine.reads();
    let records = store.list_artifacts(&caller.access(), id).await?;
    let now = store.now().await?;

    let mut items = Vec::with_capacity(records.len());
    for record in records {
        let url = if is_available(&record, now) {
            let url = api.files.signer.url(record.id, record.expires_at);
            Some(url.map_err(StoreError::Unavailable)?)
        } else {
            None
        };
        items.push(ArtifactView::new(record, url));
    }

    Ok(reply::ok(&Page {
        items,
        next_cursor: None,
    }))
}

fn is_available(record: &ArtifactRecord, now: Timestamp) -> bool {
    record.cleaned_at.is_none() && record.expires_at > now
}

pub(crate) fn download_doc() -> Doc {
    let text = parameter_schemas::text;
    let expires = "When the URL expires, in seconds since 1970";
    let signature = "The server's signature of file and expiry";
    let range = "One range of bytes: `bytes=0-99`";

    Doc::new("downloadArtifact", "Downloads a file by its signed URL")
        .parameters(vec![
            query_parameter("expires", expires, text()),
            query_parameter("signature", signature, text()),
            header_parameter("Range", range),
        ])
        .file("The file; a range of it is answered with 206")
        .problems(&[400, 403])
}

pub(crate) async fn download(
    State(api): State<Arc<Api>>,
    PathText(id): PathText,
    query: Query,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let (expires, signature) = query.signature()?;
    // An invalid id cannot have a valid signature.
    let id = ArtifactId(uuid::Uuid::try_parse(&id).map_err(|_| ApiError::BadSignature)?);
    let now = api.engine.reads().now().await?;

    let signer = &api.files.signer;
    let is_allowed = signer.allows(id, expires, &signature, now);
    if !is_allowed.map_err(StoreError::Unavailable)? {
        return Err(ApiError::BadSignature);
    }

    let record = match api.engine.reads().get_artifact(id).await {
        Err(StoreError::NotFound) => return Err(ApiError::NoArtifact),
        found => found?,
    };
    if !is_available(&record, now) {
        return Err(ApiError::NoArtifact);
    }

    let span = Span::of(headers.get(header::RANGE), record.bytes);
    let body = pieces(Arc::clone(&api.files.store), record.key.clone(), span).await?;
    Ok(file_response(&record, span, body))
}

/// What a file name may hold unescaped in a header (RFC 8187).
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// The file as a download. Whatever its type, a browser never runs it as a page of this site.
fn file_response(record: &ArtifactRecord, span: Span, body: Body) -> Response {
    let is_range = span.length() < record.bytes;
    let mut response = Response::new(body);
    *response.status_mut() = if is_range {
        StatusCode::PARTIAL_CONTENT
    } else {
        StatusCode::OK
    };

    let content_type = HeaderValue::from_str(&record.content_type)
        .unwrap_or(HeaderValue::from_static("application/octet-stream"));
    let name = utf8_percent_encode(&record.file_name, ESCAPED);
    let disposition = HeaderValue::from_str(&format!("attachment; filename*=UTF-8''{name}"))
        .unwrap_or(HeaderValue::from_static("attachment"));

    let headers = response.headers_mut();
    headers.extend([
        (header::CONTENT_TYPE, content_type),
        (header::CONTENT_LENGTH, HeaderValue::from(span.length())),
        (header::CONTENT_DISPOSITION, disposition),
    ]);
    headers.extend(FILE_HEADERS.map(|(name, value)| (name, HeaderValue::from_static(value))));
    if is_range && let Ok(range) = HeaderValue::from_str(&span.content_range(record.bytes)) {
        headers.insert(header::CONTENT_RANGE, range);
    }

    response
}

const FILE_HEADERS: [(HeaderName, &str); 5] = [
    (header::ACCEPT_RANGES, "bytes"),
    (header::CACHE_CONTROL, "private, no-store"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; sandbox",
    ),
    (header::REFERRER_POLICY, "no-referrer"),
];
