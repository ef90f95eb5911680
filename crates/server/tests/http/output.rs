//! Output streams: resumed at any offset without gap or repeat, and ended with their task.

use libtest_mimic::Trial;
use longhaul::{Status, TaskId};
use serde_json::{Value, json};

use crate::database::Backend;
use crate::trial::on_every_store;
use crate::{
    client::{Call, Event},
    server::Server,
};

pub(crate) fn trials() -> Vec<Trial> {
    on_every_store![
        a_thousand_reconnects_lose_nothing_and_repeat_nothing,
        a_stream_is_resumed_at_every_offset_without_gap_or_repeat,
        a_reader_that_reconnects_has_the_whole_output,
        a_new_attempt_rewinds_its_readers,
        a_manual_retry_continues_the_stream,
        a_stream_ends_with_the_status_of_its_task,
        deleted_output_is_announced_by_a_reset,
        a_lost_stream_continues_from_the_checkpoint,
        only_the_owner_reads_a_stream_and_offsets_are_checked
    ]
}

fn stream_of(id: &str) -> Call {
    Call::get(format!("/api/tasks/{id}/stream"))
}

/// All events of a stream from an offset to its end. The connection is closed after the last one.
async fn read_from(server: &Server, id: &str, offset: u64) -> Vec<Event> {
    let call = stream_of(id).header("Last-Event-ID", &offset.to_string());
    let mut events = call.follow(server.address).await;
    let received = events.until("end").await;
    assert_eq!(events.next().await, None, "nothing follows an end");
    received
}

fn offset_of(event: &Event) -> u64 {
    event.id.as_ref().unwrap().parse().unwrap()
}

/// What a client shows after these events.
fn shown(events: &[Event]) -> Vec<(u64, String)> {
    let mut shown: Vec<(u64, String)> = Vec::new();
    for event in events {
        let target = || event.data["offset"].as_u64().unwrap();
        match event.name.as_str() {
            "chunk" => shown.push((
                offset_of(event),
                event.data["text"].as_str().unwrap().to_owned(),
            )),
            "rewind" | "reset" => shown.retain(|(offset, _)| *offset <= target()),
            "end" => {}
            other => panic!("an event {other} in an output stream"),
        }
    }

    shown
}

fn texts(events: &[Event]) -> Vec<String> {
    shown(events).into_iter().map(|(_, text)| text).collect()
}

fn numbered(chunks: std::ops::RangeInclusive<usize>) -> Vec<String> {
    chunks.map(|chunk| format!("chunk {chunk}\n")).collect()
}

/// A reader that is disconnected after each chunk, a thousand times, while the task writes.
async fn a_thousand_reconnects_lose_nothing_and_repeat_nothing(store: Backend) {
    const RECONNECTS: usize = 1_000;

    let server = Server::start(store).await;
    let id = server
        .submit(
            "sample.stream",
            json!({ "chunks": RECONNECTS + 1, "chunkMs": 1 }),
            json!({}),
        )
        .await;

    let mut received = Vec::new();
    let mut last = 0;
    for _ in 0..=RECONNECTS {
        let mut events = stream_of(&id)
            .header("Last-Event-ID", &last.to_string())
            .follow(server.address)
            .await;

        let chunk = events.next().await.expect("the next chunk");
        assert_eq!(chunk.name, "chunk", "{chunk:?}");
        last = offset_of(&chunk);
        received.push(chunk);
    }

    assert_eq!(texts(&received), numbered(1..=RECONNECTS + 1));
    assert_eq!(
        read_from(&server, &id, last).await.len(),
        1,
        "the end and nothing else"
    );
}

async fn a_stream_is_resumed_at_every_offset_without_gap_or_repeat(store: Backend) {
    let server = Server::start(store).await;
    let id = server
        .submit(
            "sample.stream",
            json!({ "chunks": 30, "chunkMs": 1 }),
            json!({}),
        )
        .await;

    let live = read_from(&server, &id, 0).await;
    assert_eq!(texts(&live), numbered(1..=30));
    assert_eq!(
        live.iter().map(offset_of).take(30).collect::<Vec<_>>(),
        (1..=30).collect::<Vec<_>>()
    );
    assert_eq!(live.last().unwrap().data, json!({ "status": "COMPLETED" }));

    for offset in 0..=30 {
        let rest = read_from(&server, &id, offset).await;
        assert_eq!(
            texts(&rest),
            numbered(offset as usize + 1..=30),
            "after {offset}"
        );
    }

    // The id of the last event is a valid offset as well.
    let again = read_from(&server, &id, offset_of(live.last().unwrap())).await;
    assert_eq!(
        again
            .iter()
            .map(|event| event.name.as_str())
            .collect::<Vec<_>>(),
        ["end"]
    );
}

async fn a_reader_that_reconnects_has_the_whole_output(store: Backend) {
    let server = Server::start(store).await;
    let id = server
        .submit(
            "sample.stream",
            json!({ "chunks": 60, "chunkMs": 2 }),
            json!({}),
        )
        .await;

    let mut has: Vec<Event> = Vec::new();
    while has.last().is_none_or(|event| event.name != "end") {
        let after = has.last().map_or(0, offset_of);
        let mut events = stream_of(&id)
            .header("Last-Event-ID", &after.to_string())
            .follow(server.address)
            .await;

        for _ in 0..7 {
            match events.next().await {
                Some(event) => has.push(event),
                None => break,
            }
        }
    }

    assert_eq!(texts(&has), numbered(1..=60));
    assert!(
        has.iter()
            .all(|event| ["chunk", "end"].contains(&event.name.as_str())),
        "{has:?}"
    );
}

async fn a_new_attempt_rewinds_its_readers(store: Backend) {
    let server = Server::start(store).await;
    let id = server.submit("test.rewrite", json!(3), json!({})).await;
    let received = read_from(&server, &id, 0).await;
    let rewinds: Vec<&Value> = received
        .iter()
        .filter(|event| event.name == "rewind")
        .map(|event| &event.data)
        .collect();
    assert_eq!(rewinds, [&json!({ "offset": 0 }), &json!({ "offset": 0 })]);
    assert_eq!(texts(&received), ["attempt 3, a", "attempt 3, b"]);

    // A reader that stopped at any event ends with the same text.
    for stop in 0..received.len() - 1 {
        let after = received[..stop].last().map_or(0, offset_of);
        let resumed = [
            received[..stop].to_vec(),
            read_from(&server, &id, after).await,
        ]
        .concat();
        assert_eq!(
            texts(&resumed),
            ["attempt 3, a", "attempt 3, b"],
            "resumed after {after}"
        );
    }
}

async fn a_manual_retry_continues_the_stream(store: Backend) {
    let server = Server::start(store).await;
    // Slow enough to be cancelled halfway, also on a busy machine.
    let id = server
        .submit(
            "sample.stream",
            json!({ "chunks": 40, "chunkMs": 150 }),
            json!({}),
        )
        .await;

    let mut events = stream_of(&id).follow(server.address).await;
    let mut received = vec![events.next().await.unwrap(), events.next().await.unwrap()];
    server
        .send(Call::new("DELETE", format!("/api/tasks/{id}")))
        .await
        .expect(204);
    received.extend(events.until("end").await);
    assert_eq!(received.last().unwrap().data["status"], "CANCELLED");

    let written = texts(&received).len();
    assert_eq!(texts(&received), numbered(1..=written));
    server
        .send(Call::new("POST", format!("/api/tasks/{id}/retry")))
        .await
        .expect(202);
    received.extend(read_from(&server, &id, offset_of(received.last().unwrap())).await);
    assert_eq!(texts(&received), numbered(1..=40));

    let resumed_from = server.task(&id).await["result"]["resumedFrom"]
        .as_u64()
        .unwrap();
    assert!(
        resumed_from > 0 && resumed_from <= written as u64,
        "{resumed_from} of {written}"
    );
}

async fn a_stream_ends_with_the_status_of_its_task(store: Backend) {
    let server = Server::start(store).await;
    for (kind, status) in [
        ("complete", "COMPLETED"),
        ("fail", "FAILED"),
        ("exhaust", "DEAD_LETTER"),
    ] {
        let id = server
            .submit("test.end", json!(kind), json!({ "maxAttempts": 1 }))
            .await;
        let received = read_from(&server, &id, 0).await;
        assert_eq!(
            (texts(&received), &received.last().unwrap().data["status"]),
            (vec!["text".to_owned()], &json!(status))
        );

        // A later reader receives the same. The log may end a little after the task, so the ids can
        // differ.
        server.until_ended(&id).await;
        let without_ids = |events: &[Event]| {
            events
                .iter()
                .map(|event| (event.name.clone(), event.data.clone()))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            without_ids(&read_from(&server, &id, 0).await),
            without_ids(&received)
        );
    }

    let id = server.submit("test.end", json!("hang"), json!({})).await;
    let mut events = stream_of(&id).follow(server.address).await;
    assert_eq!(events.next().await.unwrap().name, "chunk");
    server
        .send(Call::new("DELETE", format!("/api/tasks/{id}")))
        .await
        .expect(204);
    assert_eq!(
        events.until("end").await.last().unwrap().data["status"],
        "CANCELLED"
    );

    let never_run = server.submit_for_later("default").await;
    server
        .send(Call::new("DELETE", format!("/api/tasks/{never_run}")))
        .await
        .expect(204);

    let names: Vec<String> = read_from(&server, &never_run, 0)
        .await
        .into_iter()
        .map(|event| event.name)
        .collect();
    assert_eq!(names, ["end"]);
}

async fn deleted_output_is_announced_by_a_reset(store: Backend) {
    let server = Server::start(store).await;
    let id = server
        .submit(
            "sample.stream",
            json!({ "chunks": 5, "chunkMs": 0 }),
            json!({}),
        )
        .await;

    server.until_ended(&id).await;
    assert_eq!(read_from(&server, &id, 0).await.len(), 6);

    // As a new process would find it: the task is in the store, its output was in memory.
    server
        .longhaul
        .sdk_client()
        .streams
        .remove(TaskId(id.parse().unwrap()))
        .await
        .unwrap();

    for offset in [0, 3, 5] {
        let received = read_from(&server, &id, offset).await;
        let names: Vec<&str> = received.iter().map(|event| event.name.as_str()).collect();
        assert_eq!(names, ["reset", "end"], "after {offset}");
        assert_eq!(
            (
                &received[0].data["offset"],
                received[0].data["reason"].is_string()
            ),
            (&json!(0), true)
        );
    }
}

async fn a_lost_stream_continues_from_the_checkpoint(store: Backend) {
    let server = Server::start(store).await;
    let id = server.submit("test.crash", json!(null), json!({})).await;

    // It writes three chunks, and has saved its position after the second.
    let mut events = stream_of(&id).follow(server.address).await;
    let mut received = Vec::new();
    for _ in 0..3 {
        received.push(events.next().await.unwrap());
    }

    server.until_status(&id, Status::Retrying).await;
    server
        .longhaul
        .sdk_client()
        .streams
        .remove(TaskId(id.parse().unwrap()))
        .await
        .unwrap();

    let now = json!({ "runAt": "2020-01-01T00:00:00Z" });
    server
        .send(Call::new("PATCH", format!("/api/tasks/{id}")).json(&now))
        .await
        .expect(200);
    received.extend(events.until("end").await);
    assert_eq!(
        texts(&received),
        ["one", "two", "three again", "four"],
        "{received:?}"
    );

    assert!(
        received.iter().any(|event| event.name == "rewind"),
        "{received:?}"
    );

    // A reader that has less than the checkpoint receives a reset: the rest is lost.
    let behind = read_from(&server, &id, 1).await;
    assert_eq!(behind[0].name, "reset", "{behind:?}");

    // A reader that had everything misses nothing.
    for offset in [2, 3] {
        assert_eq!(
            texts(&read_from(&server, &id, offset).await),
            ["three again", "four"]
        );
    }
}

async fn only_the_owner_reads_a_stream_and_offsets_are_checked(store: Backend) {
    let server = Server::behind_a_gateway(store).await;
    let id = server
        .submit_as(
            "u-1",
            "sample.stream",
            json!({ "chunks": 1, "chunkMs": 0 }),
            json!({}),
        )
        .await;

    server.until_ended(&id).await;
    server
        .send(stream_of(&id).user("u-2"))
        .await
        .problem(404, "task_not_found");

    for bad in ["x", "-1", "1.5", "99999999999999999999"] {
        let call = stream_of(&id).user("u-1").header("Last-Event-ID", bad);
        let problem = server.send(call).await.problem(400, "invalid_filter");
        assert_eq!(problem["field"], "Last-Event-ID");
        // Only callers who may see the task learn what is wrong.
        let call = stream_of(&id).user("u-2").header("Last-Event-ID", bad);
        server.send(call).await.problem(404, "task_not_found");
    }

    let call = stream_of(&id).user("u-1").header("Last-Event-ID", "77");
    let received = call.follow(server.address).await.until("end").await;
    assert_eq!(
        (received[0].name.as_str(), texts(&received)),
        ("reset", numbered(1..=1)),
        "an offset of nowhere"
    );
}
