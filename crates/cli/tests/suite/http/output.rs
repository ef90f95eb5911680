//! Output streams: resumed anywhere without gap or repeat, and ended in each way in which a task can end.

use libtest_mimic::Trial;
use longhaul::{Status, TaskId};
use serde_json::{Value, json};

use crate::database::Backend;
use crate::http::{
    client::{Call, Event},
    server::Server,
};
use crate::trial::on_every_store;

pub(crate) fn trials() -> Vec<Trial> {
    on_every_store![
        a_thousand_reconnects_lose_nothing_and_repeat_nothing,
        a_stream_is_resumed_at_every_offset_without_gap_or_repeat,
        a_reader_who_comes_and_goes_has_what_was_written,
        an_attempt_that_starts_over_rewinds_its_readers,
        a_retry_by_hand_goes_on_where_the_stream_is,
        a_stream_ends_in_each_way_in_which_its_task_ends,
        an_output_that_is_no_longer_kept_is_told_by_a_reset,
        a_stream_that_was_lost_under_its_reader_goes_on_from_the_checkpoint,
        a_stream_is_its_owners_alone_and_offsets_are_checked
    ]
}

fn stream_of(id: &str) -> Call {
    Call::get(format!("/api/tasks/{id}/stream"))
}

/// All events of a stream from an offset to its end. The connection is closed after the last one.
async fn read_from(server: &Server, id: &str, offset: u64) -> Vec<Event> {
    let call = stream_of(id).header("Last-Event-ID", &offset.to_string());
    let mut events = call.follow(server.address).await;
    let heard = events.until("end").await;
    assert_eq!(events.next().await, None, "nothing follows an end");
    heard
}

fn offset_of(event: &Event) -> u64 {
    event.id.as_ref().unwrap().parse().unwrap()
}

/// What somebody shows who has followed these events.
fn shown(events: &[Event]) -> Vec<(u64, String)> {
    let mut shown: Vec<(u64, String)> = Vec::new();
    for event in events {
        let told = || event.data["offset"].as_u64().unwrap();
        match event.name.as_str() {
            "chunk" => shown.push((
                offset_of(event),
                event.data["text"].as_str().unwrap().to_owned(),
            )),
            "rewind" | "reset" => shown.retain(|(offset, _)| *offset <= told()),
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

/// One that is cut off after each chunk, a thousand times, while the task still writes.
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
    let (mut heard, mut last) = (Vec::new(), 0);
    for _ in 0..=RECONNECTS {
        let mut events = stream_of(&id)
            .header("Last-Event-ID", &last.to_string())
            .follow(server.address)
            .await;
        let chunk = events.next().await.expect("the next chunk");
        assert_eq!(chunk.name, "chunk", "{chunk:?}");
        last = offset_of(&chunk);
        heard.push(chunk);
    }
    assert_eq!(texts(&heard), numbered(1..=RECONNECTS + 1));
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
    // The id of the last event is as good as any other.
    let again = read_from(&server, &id, offset_of(live.last().unwrap())).await;
    assert_eq!(
        again
            .iter()
            .map(|event| event.name.as_str())
            .collect::<Vec<_>>(),
        ["end"]
    );
}

async fn a_reader_who_comes_and_goes_has_what_was_written(store: Backend) {
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

async fn an_attempt_that_starts_over_rewinds_its_readers(store: Backend) {
    let server = Server::start(store).await;
    let id = server.submit("test.rewrite", json!(3), json!({})).await;
    let heard = read_from(&server, &id, 0).await;
    let rewinds: Vec<&Value> = heard
        .iter()
        .filter(|event| event.name == "rewind")
        .map(|event| &event.data)
        .collect();
    assert_eq!(rewinds, [&json!({ "offset": 0 }), &json!({ "offset": 0 })]);
    assert_eq!(texts(&heard), ["attempt 3, a", "attempt 3, b"]);
    // Wherever a reader stopped, it ends with the same.
    for stop in 0..heard.len() - 1 {
        let after = heard[..stop].last().map_or(0, offset_of);
        let resumed = [heard[..stop].to_vec(), read_from(&server, &id, after).await].concat();
        assert_eq!(
            texts(&resumed),
            ["attempt 3, a", "attempt 3, b"],
            "resumed after {after}"
        );
    }
}

async fn a_retry_by_hand_goes_on_where_the_stream_is(store: Backend) {
    let server = Server::start(store).await;
    // Slow enough to be cancelled in the middle on a busy machine, too.
    let id = server
        .submit(
            "sample.stream",
            json!({ "chunks": 40, "chunkMs": 150 }),
            json!({}),
        )
        .await;
    let mut events = stream_of(&id).follow(server.address).await;
    let mut heard = vec![events.next().await.unwrap(), events.next().await.unwrap()];
    server
        .send(Call::new("DELETE", format!("/api/tasks/{id}")))
        .await
        .expect(204);
    heard.extend(events.until("end").await);
    assert_eq!(heard.last().unwrap().data["status"], "CANCELLED");
    let written = texts(&heard).len();
    assert_eq!(texts(&heard), numbered(1..=written));
    server
        .send(Call::new("POST", format!("/api/tasks/{id}/retry")))
        .await
        .expect(202);
    heard.extend(read_from(&server, &id, offset_of(heard.last().unwrap())).await);
    assert_eq!(texts(&heard), numbered(1..=40));
    let resumed_from = server.task(&id).await["result"]["resumedFrom"]
        .as_u64()
        .unwrap();
    assert!(
        resumed_from > 0 && resumed_from <= written as u64,
        "{resumed_from} of {written}"
    );
}

async fn a_stream_ends_in_each_way_in_which_its_task_ends(store: Backend) {
    let server = Server::start(store).await;
    for (kind, status) in [
        ("complete", "COMPLETED"),
        ("fail", "FAILED"),
        ("exhaust", "DEAD_LETTER"),
    ] {
        let id = server
            .submit("test.end", json!(kind), json!({ "maxAttempts": 1 }))
            .await;
        let heard = read_from(&server, &id, 0).await;
        assert_eq!(
            (texts(&heard), &heard.last().unwrap().data["status"]),
            (vec!["text".to_owned()], &json!(status))
        );
        // Also for somebody who comes later. The end in the log may come a little after that of the task, so its number
        // is not always told.
        server.until_ended(&id).await;
        let told = |events: &[Event]| {
            events
                .iter()
                .map(|event| (event.name.clone(), event.data.clone()))
                .collect::<Vec<_>>()
        };
        assert_eq!(told(&read_from(&server, &id, 0).await), told(&heard));
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

async fn an_output_that_is_no_longer_kept_is_told_by_a_reset(store: Backend) {
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
        .services()
        .streams
        .remove(TaskId(id.parse().unwrap()))
        .await
        .unwrap();
    for offset in [0, 3, 5] {
        let heard = read_from(&server, &id, offset).await;
        let names: Vec<&str> = heard.iter().map(|event| event.name.as_str()).collect();
        assert_eq!(names, ["reset", "end"], "after {offset}");
        assert_eq!(
            (
                &heard[0].data["offset"],
                heard[0].data["reason"].is_string()
            ),
            (&json!(0), true)
        );
    }
}

async fn a_stream_that_was_lost_under_its_reader_goes_on_from_the_checkpoint(store: Backend) {
    let server = Server::start(store).await;
    let id = server.submit("test.crash", json!(null), json!({})).await;
    // It writes three chunks, and has saved its position after the second.
    let mut events = stream_of(&id).follow(server.address).await;
    let mut heard = Vec::new();
    for _ in 0..3 {
        heard.push(events.next().await.unwrap());
    }
    server.until_status(&id, Status::Retrying).await;
    server
        .longhaul
        .services()
        .streams
        .remove(TaskId(id.parse().unwrap()))
        .await
        .unwrap();
    let now = json!({ "runAt": "2020-01-01T00:00:00Z" });
    server
        .send(Call::new("PATCH", format!("/api/tasks/{id}")).json(&now))
        .await
        .expect(200);
    heard.extend(events.until("end").await);
    assert_eq!(
        texts(&heard),
        ["one", "two", "three again", "four"],
        "{heard:?}"
    );
    assert!(
        heard.iter().any(|event| event.name == "rewind"),
        "{heard:?}"
    );
    // Somebody who has less than the checkpoint is told that the rest of it is gone.
    let behind = read_from(&server, &id, 1).await;
    assert_eq!(behind[0].name, "reset", "{behind:?}");
    // Somebody who had it all, or what was taken back, misses nothing.
    for offset in [2, 3] {
        assert_eq!(
            texts(&read_from(&server, &id, offset).await),
            ["three again", "four"]
        );
    }
}

async fn a_stream_is_its_owners_alone_and_offsets_are_checked(store: Backend) {
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
        // What is wrong is told to those alone who may see the task.
        let call = stream_of(&id).user("u-2").header("Last-Event-ID", bad);
        server.send(call).await.problem(404, "task_not_found");
    }
    let call = stream_of(&id).user("u-1").header("Last-Event-ID", "77");
    let heard = call.follow(server.address).await.until("end").await;
    assert_eq!(
        (heard[0].name.as_str(), texts(&heard)),
        ("reset", numbered(1..=1)),
        "an offset of nowhere"
    );
}
