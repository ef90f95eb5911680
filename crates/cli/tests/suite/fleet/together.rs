//! Effects of one node on the others: events, cancels, restarts and pauses.

use std::collections::{BTreeMap, BTreeSet};

use libtest_mimic::Trial;
use serde_json::{Value, json};
use sqlx::Connection as _;

use super::{Fleet, until};
use crate::client::{Call, Events};
use crate::program::process::Process;
use crate::trial::once;

pub(crate) fn trials() -> Vec<Trial> {
    once![
        progress_of_any_node_is_live_on_every_other,
        a_cancel_on_any_node_reaches_the_handler,
        a_rolling_restart_runs_nothing_twice,
        a_queue_that_one_node_pauses_is_paused_for_all,
    ]
}

/// Waits until a stream has events of other nodes. They begin a moment after it was opened.
async fn until_events_of_other_nodes_arrive(events: &mut Events, node: &Process, token: &str) {
    let keep_submitting = async {
        loop {
            let id = node.submit(token, "sample.echo", json!(1)).await;
            node.until(token, &id, "COMPLETED").await;
        }
    };

    tokio::select! {
        _ = events.until("completed") => {}
        () = keep_submitting => {}
    }
}

/// The progress of the task of 400 steps in the store.
async fn stored_percent(fleet: &Fleet) -> f64 {
    let mut connection = sqlx::PgConnection::connect(&fleet.database.url)
        .await
        .unwrap();
    let stored = sqlx::query_scalar("SELECT progress FROM v_tasks WHERE progress LIKE '%of 400%'");
    let stored: Option<String> = stored.fetch_optional(&mut connection).await.unwrap();

    stored.map_or(0.0, |text| {
        serde_json::from_str::<Value>(&text).unwrap()["percent"]
            .as_f64()
            .unwrap()
    })
}

async fn progress_of_any_node_is_live_on_every_other() {
    let fleet = Fleet::make().await;
    let token = fleet.database.token("u-1").await;
    let (here, there) = tokio::join!(fleet.api(), fleet.api());
    let (_worker, _other, _maintenance) =
        tokio::join!(fleet.worker(), fleet.worker(), fleet.maintenance());

    let bearer = format!("Bearer {token}");
    let mut all = Call::get("/api/events")
        .header("Authorization", &bearer)
        .follow(there.address())
        .await;
    until_events_of_other_nodes_arrive(&mut all, &here, &token).await;

    let id = here
        .submit(
            &token,
            "sample.progress",
            json!({ "steps": 400, "stepMs": 20 }),
        )
        .await;

    // The other node shows the progress before the store has it, which is written every 5 s.
    let path = "/api/tasks?status=RUNNING&taskType=sample.progress";
    until("progress in the list of the other node", async || {
        let listed = there.get(&token, path).await.1;
        let percent = listed["items"][0]["progress"]["percent"].as_f64();
        percent.is_some_and(|percent| percent < 100.0)
            && percent > Some(stored_percent(&fleet).await)
    })
    .await;

    let mut seen = Vec::new();
    while seen
        .last()
        .is_none_or(|(name, _): &(String, Value)| name != "completed")
    {
        let event = all.next().await.expect("the stream is open");
        if event.data["taskId"] == *id {
            seen.push((event.name, event.data));
        }
    }

    let steps = seen.iter().filter(|(name, _)| name == "progress").count();
    assert!(steps >= 100, "{steps} steps of 400 arrived: {seen:?}");

    // Events of two nodes can overtake each other, and each carries the task's current state: only
    // the end is always last.
    let mut names: Vec<&str> = seen
        .iter()
        .map(|(name, _)| name.as_str())
        .filter(|name| *name != "progress")
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["completed", "started", "submitted"]);

    let (end, before) = seen.split_last().unwrap();
    let version = |event: &Value| event["version"].as_u64().unwrap();
    assert!(
        before
            .iter()
            .all(|(_, event)| version(event) < version(&end.1)),
        "{seen:?}"
    );
}

async fn a_cancel_on_any_node_reaches_the_handler() {
    let fleet = Fleet::make().await;
    let token = fleet.database.token("u-1").await;
    let (here, there) = tokio::join!(fleet.api(), fleet.api());

    // A heartbeat would deliver the cancel as well, but much later: only a signal is this fast.
    let mut one_slot = fleet.program(&["worker", "--samples", "--queues", "free_default=1"]);
    one_slot
        .env("LONGHAUL_WORKER__HEARTBEAT", "10s")
        .env("LONGHAUL_MAINTENANCE__LEASE", "2m");
    let _worker = Process::start(one_slot).await;
    let id = here
        .submit(&token, "sample.sleep", json!({ "ms": 3_000_000 }))
        .await;

    here.until(&token, &id, "RUNNING").await;
    let next = here.submit(&token, "sample.echo", json!(1)).await;
    let cancelled = Call::new("DELETE", format!("/api/tasks/{id}"))
        .header("Authorization", &format!("Bearer {token}"));
    assert_eq!(cancelled.send(there.address()).await.status, 204);

    // The only slot is free as soon as the handler has stopped.
    here.until(&token, &next, "COMPLETED").await;
    assert_eq!(
        here.get(&token, &format!("/api/tasks/{id}")).await.1["status"],
        "CANCELLED"
    );
}

async fn a_rolling_restart_runs_nothing_twice() {
    let fleet = Fleet::make().await;
    let token = fleet.database.token("u-1").await;
    let (api, _maintenance) = tokio::join!(fleet.api(), fleet.maintenance());
    let (first, second) = tokio::join!(fleet.worker(), fleet.worker());
    let bearer = format!("Bearer {token}");
    let mut events = Call::get("/api/events")
        .header("Authorization", &bearer)
        .follow(api.address())
        .await;

    until_events_of_other_nodes_arrive(&mut events, &api, &token).await;
    let mut ids = Vec::new();
    for _ in 0..60 {
        ids.push(
            api.submit(
                &token,
                "sample.progress",
                json!({ "steps": 20, "stepMs": 10 }),
            )
            .await,
        );
    }

    first.stop().await;
    let third = fleet.worker().await;
    second.stop().await;
    let fourth = fleet.worker().await;

    // A handler reports progress within 10 ms of its start: collects which attempts have started
    // and which one ended the task.
    let mut begun = BTreeSet::new();
    let mut ended = BTreeMap::new();
    while ended.len() < ids.len() {
        let event = events.next().await.expect("the stream is open");
        let Some(id) = ids.iter().find(|id| event.data["taskId"] == id.as_str()) else {
            continue;
        };
        let attempt = event.data["attempt"].as_u64();

        match event.name.as_str() {
            "progress" => drop(begun.insert((id, attempt))),
            "completed" => drop(ended.insert(id, attempt)),
            _ => {}
        }
    }

    // Progress is not published once the task has ended: under load, that of a few tasks never
    // arrives.
    let strays: Vec<_> = begun
        .difference(&ended.into_iter().collect())
        .cloned()
        .collect();
    assert!(
        strays.is_empty(),
        "attempts started that did not end their task: {strays:?}"
    );
    assert!(
        begun.len() > ids.len() / 2,
        "of {} tasks, progress of only {} arrived",
        ids.len(),
        begun.len()
    );

    for id in &ids {
        the_task_ran_once(&api, &token, id).await;
    }

    tokio::join!(third.stop(), fourth.stop());
}

async fn the_task_ran_once(api: &Process, token: &str, id: &str) {
    let task = api.get(token, &format!("/api/tasks/{id}")).await.1;
    assert_eq!(
        (&task["crashCount"], &task["retryCount"]),
        (&json!(0), &json!(0)),
        "{task}"
    );

    let path = format!("/api/tasks/{id}/attempts");
    let attempts = api.get(token, &path).await.1;
    let (last, before) = attempts["items"].as_array().unwrap().split_last().unwrap();
    // An attempt that was claimed at the moment of the signal was handed back.
    let were_handed_back = before
        .iter()
        .all(|attempt| attempt["outcome"] == "handed_back");
    assert!(
        last["outcome"] == "completed" && were_handed_back,
        "{attempts}"
    );
}

async fn a_queue_that_one_node_pauses_is_paused_for_all() {
    let fleet = Fleet::make().await;
    let token = fleet.database.token("u-1").await;
    let (here, there) = tokio::join!(fleet.api(), fleet.api());
    let (_worker, _maintenance) = tokio::join!(fleet.worker(), fleet.maintenance());
    assert_eq!(
        here.post(&token, "/api/queues/free_default/pause").await.0,
        204
    );
    let id = there.submit(&token, "sample.echo", json!(1)).await;

    let why = there.get(&token, &format!("/api/tasks/{id}/why")).await.1;
    assert_eq!(why["reason"], "paused");
    assert_eq!(
        there
            .post(&token, "/api/queues/free_default/resume")
            .await
            .0,
        204
    );

    here.until(&token, &id, "COMPLETED").await;
}
