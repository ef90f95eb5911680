//! `token`: created, listed and revoked, beside a running node.

use libtest_mimic::Trial;
use serde_json::Value;

use crate::database::{Backend, Database};
use crate::trial::{on_every_store, once};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = on_every_store![a_token_is_created_listed_and_revoked_beside_a_node];
    trials.extend(once![wrong_token_options_are_refused_with_what_is_allowed]);
    trials
}

async fn a_token_is_created_listed_and_revoked_beside_a_node(backend: Backend) {
    let database = Database::make(backend).await;
    let node = database.start(&["serve", "--samples"]).await;

    let shown = database
        .run(&[
            "token", "create", "--owner", "u-1", "--name", "ci", "--tier", "vip",
        ])
        .await;
    let token = shown.ok().trim().to_owned();
    assert!(
        token.starts_with("lh_live_") && !token.contains('\n'),
        "{token}"
    );
    assert_eq!(node.get(&token, "/api/tasks").await.0, 200);
    assert_eq!(node.get(&token, "/api/queues").await.0, 403);

    let id = token.split('_').nth(2).unwrap();
    let listed = database.run(&["token", "list"]).await;
    let table = listed.ok();
    assert!(
        table.contains(id) && table.contains("ci") && table.contains("good"),
        "{table}"
    );
    assert!(!listed.all().contains(&token), "it is shown only once");

    let list: Value =
        serde_json::from_str(&database.run(&["token", "list", "--json"]).await.ok()).unwrap();
    assert_eq!(
        (&list[0]["tier"], &list[0]["state"]),
        (&"vip".into(), &"good".into())
    );
    assert!(
        list[0]["lastUsedAt"].is_string() && list[0].get("token").is_none(),
        "{list}"
    );
    let as_listed = format!("lh_live_{id}");
    assert!(table.contains(&as_listed), "{table}");

    assert!(
        database
            .run(&["token", "revoke", &as_listed])
            .await
            .ok()
            .contains("revoked")
    );

    node.until_refused(&token).await;
    assert_eq!(
        node.get(&token, "/api/tasks").await.1["code"],
        "token_revoked"
    );
    node.stop().await;
}

async fn wrong_token_options_are_refused_with_what_is_allowed() {
    let database = Database::make(Backend::Sqlite).await;
    let output = database
        .run(&[
            "token",
            "create",
            "--owner",
            "u-1",
            "--scopes",
            "everything",
        ])
        .await
        .failed();
    assert!(
        output.contains("everything") && output.contains("tasks:write"),
        "{output}"
    );
    let output = database
        .run(&["token", "create", "--owner", ""])
        .await
        .failed();
    assert!(output.contains("userId"), "{output}");

    let output = database
        .run(&["token", "create", "--owner", "u-1", "--tier", "gold"])
        .await
        .all();
    assert!(
        output.contains("gold")
            && output.contains("free_default")
            && output.contains("enterprise, vip"),
        "{output}"
    );
    let output = database
        .run(&["token", "create", "--owner", "u-1", "--tier", "vip"])
        .await
        .all();
    assert!(!output.contains("No rule"), "{output}");

    let output = database
        .run(&["token", "create", "--owner", "u-1", "--expires", "0s"])
        .await
        .failed();
    assert!(output.contains("expires"), "{output}");

    let output = database.run(&["token", "revoke", "nobody"]).await.failed();
    assert!(
        output.contains("there is no token with the id \"nobody\""),
        "{output}"
    );
}
