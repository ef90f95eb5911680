//! The pages for browsers: they are complete, load nothing from other hosts, and have security
//! headers.

use std::collections::BTreeSet;
use std::path::Path;

use libtest_mimic::Trial;

use crate::database::Backend;
use crate::trial::once;
use crate::{
    client::{Call, Reply},
    server::Server,
};

pub(crate) fn trials() -> Vec<Trial> {
    once![
        every_file_is_served_with_its_type_and_security_headers,
        no_page_loads_from_another_host_or_turns_data_into_markup,
        every_reference_of_a_page_exists,
        every_response_forbids_type_sniffing
    ]
}

/// The names of all files of the pages.
fn folder() -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("pages");
    let names = std::fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.collect()
}

/// Every page and file as it is served.
async fn served(server: &Server) -> Vec<(String, Reply)> {
    let mut all = Vec::new();
    for name in folder() {
        let path = match name.as_str() {
            "status.html" => "/".to_owned(),
            "docs.html" => "/docs".to_owned(),
            _ => format!("/pages/{name}"),
        };

        let reply = server.get(&path).await;
        assert_eq!(reply.status, 200, "{path}");
        all.push((name, reply));
    }

    assert!(all.len() >= 8);
    all
}

async fn every_file_is_served_with_its_type_and_security_headers() {
    let server = Server::behind_a_gateway(Backend::Sqlite).await;
    for (name, reply) in served(&server).await {
        let kind = match name.rsplit('.').next().unwrap() {
            "html" => "text/html; charset=utf-8",
            "js" => "text/javascript; charset=utf-8",
            "css" => "text/css; charset=utf-8",
            "svg" => "image/svg+xml",
            other => panic!("unexpected extension {other}"),
        };
        assert_eq!(reply.headers["content-type"], kind, "{name}");
        assert_eq!(reply.headers["x-content-type-options"], "nosniff", "{name}");
        assert_eq!(reply.headers["x-frame-options"], "DENY", "{name}");
        assert_eq!(reply.headers["referrer-policy"], "same-origin", "{name}");

        let policy = &reply.headers["content-security-policy"];
        assert!(
            policy.starts_with("default-src 'self';") && policy.contains("frame-ancestors 'none'"),
            "{policy}"
        );
        assert!(!policy.contains("unsafe"), "{policy}");
    }

    server
        .get("/pages/nothing.js")
        .await
        .problem(404, "no_such_path");
    server
        .get("/pages/..%2Fsrc%2Flib.rs")
        .await
        .problem(404, "no_such_path");
}

async fn no_page_loads_from_another_host_or_turns_data_into_markup() {
    let server = Server::start(Backend::Sqlite).await;
    for (name, reply) in served(&server).await {
        let text = reply
            .text
            .replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
        for banned in ["http://", "https://", "\"//", "'//", "url(", "@import"] {
            assert!(!text.contains(banned), "{name} has {banned}");
        }

        for banned in [
            "<style",
            "style=",
            "<script>",
            "onclick",
            "onload",
            "javascript:",
        ] {
            assert!(
                !text.contains(banned),
                "{name} has {banned}, which the policy forbids"
            );
        }

        for banned in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "localStorage",
        ] {
            assert!(!text.contains(banned), "{name} has {banned}");
        }
    }
}

async fn every_reference_of_a_page_exists() {
    let server = Server::start(Backend::Sqlite).await;
    let mut references = BTreeSet::new();
    let files = served(&server).await;
    for (_, reply) in &files {
        for (before, after) in [("src=\"", "\""), ("href=\"", "\""), ("from \"", "\"")] {
            let paths = reply
                .text
                .split(before)
                .skip(1)
                .filter_map(|rest| rest.split(after).next());
            references.extend(paths.map(|path| path.replace("./", "/pages/")));
        }
    }

    assert!(
        references.contains("/pages/common.js") && references.contains("/docs"),
        "{references:?}"
    );

    for path in references {
        assert_eq!(server.get(&path).await.status, 200, "{path}");
    }
}

async fn every_response_forbids_type_sniffing() {
    let server = Server::start(Backend::Sqlite).await;
    let id = server.submit_for_later("default").await;
    for call in [
        Call::get("/api/tasks"),
        Call::get("/api/tasks/nothing"),
        Call::get("/nothing"),
        Call::new("PUT", "/api/tasks"),
        Call::new("DELETE", format!("/api/tasks/{id}")),
    ] {
        let reply = server.send(call.clone()).await;
        assert_eq!(
            reply.headers["x-content-type-options"], "nosniff",
            "{call:?}"
        );
    }
}
