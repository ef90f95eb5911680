//! The pages for browsers: the live status, and the API reference.
//!
//! The pages hold no data. They read it from the API with the rights of the visitor. They are
//! embedded in the program and load nothing from other hosts, which their Content-Security-Policy
//! enforces.

use axum::{
    body::Body,
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::Response,
};

use crate::{api::PathText, openapi::Doc, problem::ApiError};

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The scripts, styles and images of the folder `pages`.
const FILES: [(&str, &str, &str); 6] = [
    ("common.js", SCRIPT, include_str!("../../pages/common.js")),
    ("docs.js", SCRIPT, include_str!("../../pages/docs.js")),
    (
        "icon.svg",
        "image/svg+xml",
        include_str!("../../pages/icon.svg"),
    ),
    ("live.js", SCRIPT, include_str!("../../pages/live.js")),
    (
        "pages.css",
        "text/css; charset=utf-8",
        include_str!("../../pages/pages.css"),
    ),
    ("status.js", SCRIPT, include_str!("../../pages/status.js")),
];

/// Scripts, styles and data come from this server only, and no other site may frame a page.
const HEADERS: [(HeaderName, &str); 4] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
         object-src 'none'",
    ),
    (header::REFERRER_POLICY, "same-origin"),
    (header::X_FRAME_OPTIONS, "DENY"),
    // A new version of the program is a new page.
    (header::CACHE_CONTROL, "no-cache"),
];

pub(crate) fn status_doc() -> Doc {
    Doc::new("statusPage", "A page with the live status").text("text/html", "The page")
}

pub(crate) async fn status() -> Response {
    answer(HTML, include_str!("../../pages/status.html"))
}

pub(crate) fn docs_doc() -> Doc {
    Doc::new("docsPage", "A page with the reference of this API").text("text/html", "The page")
}

pub(crate) async fn docs() -> Response {
    answer(HTML, include_str!("../../pages/docs.html"))
}

pub(crate) fn file_doc() -> Doc {
    Doc::new("pageFile", "A script, style or image of the pages")
        .text("text/javascript", "The file")
        .problems(&[404])
}

pub(crate) async fn file(PathText(name): PathText) -> Result<Response, ApiError> {
    let found = FILES.into_iter().find(|(known, ..)| *known == name);
    found
        .map(|(_, kind, text)| answer(kind, text))
        .ok_or(ApiError::NoRoute)
}

fn answer(kind: &'static str, text: &'static str) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = StatusCode::OK;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.extend(HEADERS.map(|(name, value)| (name, HeaderValue::from_static(value))));
    response
}
