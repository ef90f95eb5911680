//! `token`: made, listed and revoked, beside a node that runs.

use libtest_mimic::Trial;
use serde_json::Value;

use crate::database::{Backend, Database};
use crate::trial::{on_every_store, once};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = on_every_store![a_token_is_made_listed_and_revoked_beside_a_node];
    trials.extend(once![
        a_token_that_does_not_fit_is_refused_and_says_what_is_allowed
    ]);
    trials
}

async fn a_token_is_made_listed_and_revoked_beside_a_node(backend: Backend) {
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
    assert!(
        !listed.all().contains(&token),
        "nobody sees it a second time"
    );
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

async fn a_token_that_does_not_fit_is_refused_and_says_what_is_allowed() {
    let database = Database::make(Backend::Sqlite).await;
    let told = database
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
        told.contains("everything") && told.contains("tasks:write"),
        "{told}"
    );
    let told = database
        .run(&["token", "create", "--owner", ""])
        .await
        .failed();
    assert!(told.contains("userId"), "{told}");
    let told = database
        .run(&["token", "create", "--owner", "u-1", "--tier", "gold"])
        .await
        .all();
    assert!(
        told.contains("gold") && told.contains("free_default") && told.contains("enterprise, vip"),
        "{told}"
    );
    let told = database
        .run(&["token", "create", "--owner", "u-1", "--tier", "vip"])
        .await
        .all();
    assert!(!told.contains("No rule"), "{told}");
    let told = database
        .run(&["token", "create", "--owner", "u-1", "--expires", "0s"])
        .await
        .failed();
    assert!(told.contains("expires"), "{told}");
    let told = database.run(&["token", "revoke", "nobody"]).await.failed();
    assert!(
        told.contains("there is no token with the id \"nobody\""),
        "{told}"
    );
}
