//! Files: downloaded by signed URLs, visible once their attempt is accepted, and deleted after they
//! expire.

use std::time::Duration;

use libtest_mimic::Trial;
use longhaul::{
    FileLife, MaintenanceSettings,
    server::{Gateway, IdentityMode, Network},
};
use serde_json::{Value, json};

use crate::database::Backend;
use crate::trial::on_every_store;
use crate::{
    client::{Call, Reply},
    server::Server,
};

pub(crate) fn trials() -> Vec<Trial> {
    on_every_store![
        a_file_is_downloaded_only_by_its_signed_url,
        a_url_with_an_invalid_signature_is_refused,
        a_failed_attempt_publishes_no_files,
        an_expired_file_is_refused_then_deleted_and_its_row_is_marked,
        a_tier_decides_how_long_files_are_retained
    ]
}

/// A sample's file: its task and its URL.
async fn file(server: &Server, bytes: usize) -> (String, String) {
    let id = server
        .submit_as(
            "u-1",
            "sample.artifact",
            json!({ "bytes": bytes }),
            json!({}),
        )
        .await;

    server.until_ended(&id).await;

    let task = server
        .send(Call::get(format!("/api/tasks/{id}")).user("u-1"))
        .await
        .expect(200);
    assert_eq!(
        (&task["status"], &task["resultUrl"]),
        (&json!("COMPLETED"), &task["result"]["url"]),
        "{task}"
    );
    assert_eq!(task["result"]["bytes"], json!(bytes));

    (id, task["result"]["url"].as_str().unwrap().to_owned())
}

async fn files_of(server: &Server, id: &str) -> Vec<Value> {
    let list = server
        .send(Call::get(format!("/api/tasks/{id}/artifacts")).user("u-1"))
        .await
        .expect(200);
    assert_eq!(list["nextCursor"], Value::Null);
    list["items"].as_array().unwrap().clone()
}

async fn a_file_is_downloaded_only_by_its_signed_url(store: Backend) {
    let server = Server::behind_a_gateway(store).await;
    // More than one read of the download.
    let (id, url) = file(&server, 600_000).await;

    // The signature is enough: no user is named.
    let Reply {
        status,
        headers,
        text,
    } = server.get(&url).await;

    assert_eq!((status, text.len(), &text[..6]), (200, 600_000, "A line"));
    let header = |name: &str| headers.get(name).map(String::as_str);
    assert_eq!(header("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(
        header("content-disposition"),
        Some("attachment; filename*=UTF-8''sample.txt")
    );
    assert_eq!(header("x-content-type-options"), Some("nosniff"));
    assert_eq!(
        header("content-security-policy"),
        Some("default-src 'none'; sandbox")
    );

    assert_eq!(header("content-length"), Some("600000"));
    let part = server
        .send(Call::get(&url).header("Range", "bytes=2-5"))
        .await;
    assert_eq!((part.status, part.text.as_str()), (206, "line"));
    assert_eq!(part.headers["content-range"], "bytes 2-5/600000");

    let files = files_of(&server, &id).await;
    assert_eq!(
        (files.len(), &files[0]["url"], &files[0]["bytes"]),
        (1, &json!(url), &json!(600_000))
    );
    assert_eq!(
        (&files[0]["fileName"], &files[0]["attempt"]),
        (&json!("sample.txt"), &json!(1))
    );

    let empty = file(&server, 0).await.1;
    assert_eq!(
        (
            server.get(&empty).await.status,
            server.get(&empty).await.text
        ),
        (200, String::new())
    );

    let foreign = server
        .send(Call::get(format!("/api/tasks/{id}/artifacts")).user("u-2"))
        .await;
    foreign.problem(404, "task_not_found");
}

async fn a_url_with_an_invalid_signature_is_refused(store: Backend) {
    let server = Server::behind_a_gateway(store).await;
    let one = file(&server, 10).await.1;
    let two = file(&server, 10).await.1;
    let (path, query) = one.split_once('?').unwrap();
    let (expires, signature) = query.split_once("&signature=").unwrap();

    let later = format!(
        "expires={}",
        expires
            .trim_start_matches("expires=")
            .parse::<i64>()
            .unwrap()
            + 1
    );

    let other = if signature.starts_with('0') { "1" } else { "0" };
    for wrong in [
        path.to_owned(),
        format!("{path}?{expires}"),
        format!("{path}?signature={signature}"),
        format!("{path}?{expires}&signature={other}{}", &signature[1..]),
        format!("{path}?{expires}&signature="),
        format!("{path}?{expires}&signature={}", "é".repeat(32)),
        format!("{path}?{later}&signature={signature}"),
        format!("{path}?expires=x&signature={signature}"),
        format!("{}?{query}", two.split_once('?').unwrap().0),
        format!("/api/artifacts/..%2f..%2fetc?{query}"),
    ] {
        // A user's name does not help either.
        let call = Call::get(&wrong)
            .user("u-1")
            .header("X-User-Scopes", "admin");
        server.send(call).await.problem(403, "invalid_signature");
    }

    server
        .get(format!("{one}&expires=1"))
        .await
        .problem(400, "invalid_filter");
    assert_eq!(server.get(&one).await.status, 200);
}

async fn a_failed_attempt_publishes_no_files(store: Backend) {
    let server = Server::behind_a_gateway(store).await;
    let id = server
        .submit_as("u-1", "test.files", Value::Null, json!({}))
        .await;

    let task = server.until_ended(&id).await;
    assert_eq!(task.attempt, 2);

    let names: Vec<Value> = files_of(&server, &id)
        .await
        .iter()
        .map(|file| file["fileName"].clone())
        .collect();
    assert_eq!(names, ["of attempt 2.txt"]);
    // The first attempt's URL is signed, but its file was never published.
    let result: Value = serde_json::from_str(task.result.as_ref().unwrap().as_str()).unwrap();
    server
        .get(result["first"].as_str().unwrap())
        .await
        .problem(404, "artifact_not_found");
    assert_eq!(
        server.get(result["second"].as_str().unwrap()).await.text,
        "text of attempt 2"
    );
}

async fn an_expired_file_is_refused_then_deleted_and_its_row_is_marked(store: Backend) {
    let server = Server::configured(
        store,
        IdentityMode::TrustedHeader(Gateway::within(Network::LOOPBACK.to_vec())),
        |builder| {
            let none = FileLife {
                free: Duration::ZERO,
                ..FileLife::default()
            };
            let maintenance = MaintenanceSettings {
                sweep_every: Duration::from_millis(20),
                ..MaintenanceSettings::default()
            };
            builder.file_life(none).maintenance(maintenance)
        },
    )
    .await;

    let (id, url) = file(&server, 10).await;
    server.get(&url).await.problem(403, "invalid_signature");

    let swept = async {
        loop {
            let files = files_of(&server, &id).await;
            assert_eq!(
                (files.len(), &files[0]["url"]),
                (1, &Value::Null),
                "what has expired has no URL"
            );

            if files[0]["cleanedAt"].is_string() {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(crate::client::DEADLINE, swept)
        .await
        .expect("a sweep in time");

    let left = std::fs::read_dir(server.database.folder.path().join("artifacts")).unwrap();
    assert_eq!(left.count(), 0, "the file is gone with its folders");
}

async fn a_tier_decides_how_long_files_are_retained(store: Backend) {
    let server = Server::behind_a_gateway(store).await;
    for (tier, days) in [
        (None, 3),
        (Some("free"), 3),
        (Some("vip"), 30),
        (Some("enterprise"), 365),
    ] {
        let submit = Call::post(
            "/api/tasks",
            &json!({ "taskType": "sample.artifact", "parameters": { "bytes": 1 } }),
        );

        let submit = tier.into_iter().fold(submit.user("u-1"), |call, tier| {
            call.header("X-User-Tier", tier)
        });

        let id = server.send(submit).await.expect(202)["taskId"]
            .as_str()
            .unwrap()
            .to_owned();
        server.until_ended(&id).await;

        let files = files_of(&server, &id).await;
        let moment = |name: &str| {
            files[0][name]
                .as_str()
                .unwrap()
                .parse::<jiff::Timestamp>()
                .unwrap()
        };

        let lifetime = moment("expiresAt").duration_since(moment("createdAt"));
        assert_eq!(lifetime.as_hours(), days * 24, "{tier:?}");
    }
}
