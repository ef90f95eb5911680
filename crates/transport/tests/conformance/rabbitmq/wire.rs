//! Messages as other programs see them, messages from other programs, and changes at the server.

use std::time::Duration;

use lapin::{
    options::{QueueDeclareOptions, QueueDeleteOptions, QueuePurgeOptions},
    types::{AMQPValue, FieldTable},
};
use libtest_mimic::Trial;
use longhaul_domain::{
    Json, Lease, LeaseToken, Status, TaskId,
    contract::{
        Broker,
        broker::{BrokerError, Hint, ProgressReport, Published, Signal},
    },
    event::{EventKind, MessageBody, OutboxMessage, Topic},
    time::Timestamp,
};
use longhaul_testkit::names::queue_name;
use longhaul_transport::rabbitmq::{QueueKind, RabbitBroker, RabbitOptions};
use serde_json::{Value, json};

use super::{
    bare::{Bare, header, next},
    fresh::Namespace,
};
use crate::{fresh::random_id, trial};

pub(crate) fn trials() -> Vec<Trial> {
    let name = |sentence: &str| format!("rabbitmq::{sentence}");
    vec![
        trial(
            &name("a_hint_carries_its_headers"),
            a_hint_carries_its_headers,
        ),
        trial(
            &name("an_event_is_a_cloud_event"),
            an_event_is_a_cloud_event,
        ),
        trial(
            &name("a_dead_letter_is_in_the_dead_letter_queue"),
            a_dead_letter_is_in_the_dead_letter_queue,
        ),
        trial(
            &name("an_unreadable_hint_becomes_a_dead_letter_and_is_counted"),
            an_unreadable_hint_becomes_a_dead_letter_and_is_counted,
        ),
        trial(
            &name("an_unreadable_report_becomes_a_dead_letter"),
            an_unreadable_report_becomes_a_dead_letter,
        ),
        trial(
            &name("a_signal_reaches_the_other_processes"),
            a_signal_reaches_the_other_processes,
        ),
        trial(
            &name("a_queue_with_other_settings_is_named"),
            a_queue_with_other_settings_is_named,
        ),
        trial(
            &name("a_reserved_name_is_refused"),
            a_reserved_name_is_refused,
        ),
        trial(
            &name("a_delayed_hint_reaches_only_its_own_queue"),
            a_delayed_hint_reaches_only_its_own_queue,
        ),
        trial(
            &name("with_quorum_queues_no_queue_is_classic"),
            with_quorum_queues_no_queue_is_classic,
        ),
        trial(
            &name("a_deleted_queue_is_declared_again"),
            a_deleted_queue_is_declared_again,
        ),
        trial(
            &name("a_purged_queue_is_empty_and_still_works"),
            a_purged_queue_is_empty_and_still_works,
        ),
        trial(
            &name("a_wrong_password_is_reported_without_showing_it"),
            a_wrong_password_is_reported_without_showing_it,
        ),
        trial(
            &name("a_missing_server_fails_fast"),
            a_missing_server_fails_fast,
        ),
    ]
}

pub(crate) fn hint(queue: &str) -> Hint {
    Hint {
        task_id: TaskId(random_id()),
        owner: "ann".to_owned(),
        task_type: "novel.write".to_owned(),
        queue: queue_name(queue),
        priority: 7,
        retry_count: 2,
        submitted_at: Timestamp::from_micros(1_700_000_000_123_456),
        due_at: Timestamp::from_micros(1_700_000_001_000_000),
        lookups: 0,
        correlation_id: Some("request 7".to_owned()),
        trace_context: Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned()),
    }
}

fn message(topic: Topic) -> OutboxMessage {
    OutboxMessage {
        topic,
        task_id: TaskId(random_id()),
        body: MessageBody {
            event: EventKind::DeadLettered,
            user_id: "ann".to_owned(),
            task_type: "novel.write".to_owned(),
            queue: "vip_short".to_owned(),
            priority: 4,
            status: Status::DeadLetter,
            attempt: 5,
            retry_count: 4,
            version: 12,
            due_at: 0,
            occurred_at: 1_700_000_000_123_456,
            error: Some("the model is away".to_owned()),
            error_class: Some("retryable".to_owned()),
            correlation_id: Some("request 7".to_owned()),
            trace_context: None,
        },
    }
}

async fn a_hint_carries_its_headers() {
    let namespace = Namespace::new();
    let broker = namespace.broker(QueueKind::Classic).await;
    broker.declare(&["vip_short".to_owned()]).await.unwrap();
    let published = hint("vip_short");
    assert_eq!(
        broker
            .publish_hints(&[published.clone(), published.clone()])
            .await,
        [Published::Confirmed, Published::Confirmed]
    );

    let bare = Bare::connect(&namespace).await;
    let mut consumer = bare.consume(&namespace.full("vip_short")).await;
    let first = next(&mut consumer).await;
    let second = next(&mut consumer).await;
    assert_eq!(first.routing_key.as_str(), "vip_short.novel.write");

    let properties = &first.properties;
    assert_ne!(properties.message_id(), second.properties.message_id());
    assert!(properties.message_id().is_some());
    assert_eq!(
        properties.correlation_id().as_ref().unwrap().as_str(),
        "request 7"
    );
    assert_eq!(properties.timestamp(), &Some(1_700_000_001));
    assert_eq!(
        (properties.priority(), properties.delivery_mode()),
        (&Some(7), &Some(2))
    );

    let headers = [
        ("taskId", published.task_id.to_string()),
        ("userId", "ann".to_owned()),
        ("taskType", "novel.write".to_owned()),
        ("submittedAt", "2023-11-14T22:13:20.123456Z".to_owned()),
        ("x-retry-count", "2".to_owned()),
        ("traceparent", published.trace_context.unwrap()),
    ];
    for (name, value) in headers {
        assert_eq!(header(&first, name), Some(value), "{name}");
    }

    assert!(
        first.data.len() < 1_024,
        "a hint carries ids and nothing else"
    );
}

async fn an_event_is_a_cloud_event() {
    let namespace = Namespace::new();
    let broker = namespace.broker(QueueKind::Classic).await;
    let bare = Bare::connect(&namespace).await;
    let exchange = namespace.full("events.exchange");
    let mut wanted = bare.subscribe(&exchange, "task.dead_lettered.#").await;
    let mut unwanted = bare.subscribe(&exchange, "task.completed.#").await;

    let event = message(Topic::Event);
    assert_eq!(
        broker.publish(std::slice::from_ref(&event)).await,
        [Published::Confirmed]
    );

    let received = next(&mut wanted).await;
    assert_eq!(
        received.routing_key.as_str(),
        "task.dead_lettered.novel.write"
    );
    let content_type = received.properties.content_type().as_ref().unwrap();
    assert_eq!(
        content_type.as_str(),
        "application/cloudevents+json; charset=UTF-8"
    );
    let task_id = event.task_id.to_string();

    let expected = json!({
        "specversion": "1.0",
        "id": format!("{task_id}-12-dead_lettered"),
        "source": format!("/longhaul/{}", namespace.name),
        "type": "dev.longhaul.task.dead_lettered",
        "subject": task_id,
        "time": "2023-11-14T22:13:20.123456Z",
        "datacontenttype": "application/json",
        "data": {
            "taskId": task_id, "userId": "ann", "taskType": "novel.write",
            "queue": "vip_short", "priority": 4, "event": "dead_lettered",
            "status": "DEAD_LETTER", "attempt": 5, "retryCount": 4, "version": 12,
            "correlationId": "request 7",
            "error": {"class": "retryable", "message": "the model is away"},
        },
    });
    assert_eq!(
        serde_json::from_slice::<Value>(&received.data).unwrap(),
        expected
    );
    assert!(futures::poll!(futures::StreamExt::next(&mut unwanted)).is_pending());
}

async fn a_dead_letter_is_in_the_dead_letter_queue() {
    let namespace = Namespace::new();
    let broker = namespace.broker(QueueKind::Classic).await;
    let dead = message(Topic::DeadLetter);
    assert_eq!(
        broker.publish(std::slice::from_ref(&dead)).await,
        [Published::Confirmed]
    );

    let bare = Bare::connect(&namespace).await;
    let letter = next(&mut bare.consume(&namespace.full("dlq")).await).await;
    assert_eq!(header(&letter, "taskId"), Some(dead.task_id.to_string()));
    let read: Value = serde_json::from_slice(&letter.data).unwrap();
    assert_eq!(read["data"]["status"], "DEAD_LETTER");

    // Without a queue a dead letter is refused, not dropped. An event needs no receiver.
    bare.channel
        .queue_delete(namespace.full("dlq").into(), QueueDeleteOptions::default())
        .await
        .unwrap();
    let answers = broker.publish(&[dead, message(Topic::Event)]).await;
    assert!(matches!(answers[0], Published::Refused(_)), "{answers:?}");
    assert_eq!(answers[1], Published::Confirmed);
}

async fn an_unreadable_hint_becomes_a_dead_letter_and_is_counted() {
    for kind in [QueueKind::Classic, QueueKind::Quorum] {
        let namespace = Namespace::new();
        let broker = namespace.broker(kind).await;
        broker.declare(&["vip_short".to_owned()]).await.unwrap();
        let bare = Bare::connect(&namespace).await;
        let bad = [
            b"not JSON".to_vec(),
            b"{}".to_vec(),
            vec![b' '; 100_000],
            Vec::new(),
        ];
        for body in &bad {
            bare.publish(&namespace.full("exchange"), "vip_short.x", body)
                .await;
        }

        let good = hint("vip_short");
        assert_eq!(
            broker.publish_hints(std::slice::from_ref(&good)).await,
            [Published::Confirmed]
        );

        // The valid hint overtakes those without a priority.
        let mut consumer = broker.hints("vip_short");
        let mut received = Vec::new();
        let mut letters = bare.consume(&namespace.full("dlq")).await;
        let mut dead = Vec::new();
        while received.is_empty() || dead.len() < bad.len() {
            tokio::select! {
                more = consumer.next(8) => {
                    received.extend(more.into_iter().map(|delivery| delivery.hint));
                }
                letter = next(&mut letters) => dead.push(letter.data),
            }
        }

        assert_eq!(received, [good]);
        assert!(bad.iter().all(|body| dead.contains(body)));

        let traffic = broker
            .traffic()
            .into_iter()
            .find(|(name, _)| name == "tasks.vip_short")
            .unwrap()
            .1;
        assert_eq!(
            (traffic.published, traffic.nacked, traffic.delivered),
            (1, 4, 5)
        );
    }
}

async fn an_unreadable_report_becomes_a_dead_letter() {
    let namespace = Namespace::new();
    let broker = namespace.broker(QueueKind::Classic).await;
    let bare = Bare::connect(&namespace).await;
    bare.publish("", &namespace.full("progress"), b"[1, 2")
        .await;

    let report = ProgressReport {
        lease: Lease {
            task_id: TaskId(random_id()),
            attempt: 1,
            token: LeaseToken(random_id()),
        },
        sequence: 1,
        progress: Json::parse("progress", "50").unwrap(),
        is_full: false,
    };
    assert_eq!(
        broker.report_progress(std::slice::from_ref(&report)).await,
        [Published::Confirmed]
    );

    let mut inbox = broker.progress_inbox();
    let read = tokio::time::timeout(Duration::from_secs(60), inbox.next(8))
        .await
        .unwrap();
    assert_eq!(read[0].1, report);
    let letter = next(&mut bare.consume(&namespace.full("dlq")).await).await;
    assert_eq!(letter.data, b"[1, 2");
    assert_eq!(
        header(&letter, "x-from-queue").as_deref(),
        Some("tasks.progress")
    );
}

async fn a_signal_reaches_the_other_processes() {
    let namespace = Namespace::new();
    let here = namespace.broker(QueueKind::Classic).await;
    let there = namespace.broker(QueueKind::Classic).await;
    let mut of_here = here.signals();
    let mut of_there = there.signals();
    let cancelled = Signal::Cancelled {
        task_ids: vec![TaskId(random_id())],
    };
    let last = Signal::QueueChanged {
        queue: "vip_short".to_owned(),
    };

    here.signal(cancelled.clone());
    here.signal(last.clone());
    for listener in [&mut of_here, &mut of_there] {
        for signal in [&cancelled, &last] {
            let received = tokio::time::timeout(Duration::from_secs(60), listener.next())
                .await
                .unwrap();
            assert_eq!(received.as_ref(), Some(signal), "each signal once");
        }
    }
}

async fn a_queue_with_other_settings_is_named() {
    let namespace = Namespace::new();
    let bare = Bare::connect(&namespace).await;

    let durable = QueueDeclareOptions {
        durable: true,
        ..QueueDeclareOptions::default()
    };
    let queue = namespace.full("vip_short");

    bare.channel
        .queue_declare(queue.clone().into(), durable, FieldTable::default())
        .await
        .unwrap();

    let broker = namespace.broker(QueueKind::Classic).await;
    let BrokerError::Topology(why) = broker.declare(&["vip_short".to_owned()]).await.unwrap_err()
    else {
        panic!("the settings differ")
    };
    assert!(
        why.contains(&queue) && why.contains("x-") && why.contains("Delete it"),
        "{why}"
    );

    // The other queues still work.
    assert_eq!(broker.depth("free_default").await, Ok(0));
    assert_eq!(
        broker.publish_hints(&[hint("free_default")]).await,
        [Published::Confirmed]
    );

    bare.channel
        .queue_delete(queue.into(), QueueDeleteOptions::default())
        .await
        .unwrap();
    broker.declare(&["vip_short".to_owned()]).await.unwrap();

    // A queue that every link needs takes the broker down until it is fixed.
    let other = Namespace::new();
    let bare = Bare::connect(&other).await;
    bare.channel
        .queue_declare(other.full("dlq").into(), durable, FieldTable::default())
        .await
        .unwrap();

    let broker = other.connecting(QueueKind::Classic);
    let BrokerError::Topology(why) = broker.declare(&[]).await.unwrap_err() else {
        panic!("the settings differ")
    };
    assert!(why.contains(&other.full("dlq")), "{why}");

    bare.channel
        .queue_delete(other.full("dlq").into(), QueueDeleteOptions::default())
        .await
        .unwrap();
    super::fresh::until_up(&*broker).await;
}

async fn a_reserved_name_is_refused() {
    let namespace = Namespace::new();
    let broker = namespace.broker(QueueKind::Classic).await;
    for queue in ["dlq", "progress", "wait.250"] {
        let refusal = broker.declare(&[queue.to_owned()]).await.unwrap_err();
        assert!(
            matches!(&refusal, BrokerError::Topology(why) if why.contains(queue)),
            "{refusal}"
        );
        assert!(matches!(
            broker.publish_hints(&[hint(queue)]).await[..],
            [Published::Refused(_)]
        ));
    }
}

async fn a_delayed_hint_reaches_only_its_own_queue() {
    for kind in [QueueKind::Classic, QueueKind::Quorum] {
        let namespace = Namespace::new();
        let broker = namespace.broker(kind).await;

        // The delay is 250 ms. The other queues have names that a routing key might start with.
        let others = ["250", "wait"];
        broker
            .declare(&["vip_short", "250", "wait"].map(str::to_owned))
            .await
            .unwrap();

        let waiting = hint("vip_short");
        assert_eq!(
            broker.publish_hints_later(&[(waiting.clone(), 250)]).await,
            [Published::Confirmed]
        );

        let mut consumer = broker.hints("vip_short");
        let received = tokio::time::timeout(Duration::from_secs(60), consumer.next(8))
            .await
            .unwrap();
        assert_eq!(received[0].hint, waiting);
        for queue in others {
            let own = hint(queue);
            assert_eq!(
                broker.publish_hints(std::slice::from_ref(&own)).await,
                [Published::Confirmed]
            );

            let mut consumer = broker.hints(queue);
            let received = tokio::time::timeout(Duration::from_secs(60), consumer.next(8))
                .await
                .unwrap();
            assert_eq!(received[0].hint, own, "{queue}");
        }
    }
}

async fn with_quorum_queues_no_queue_is_classic() {
    let namespace = Namespace::new();
    let broker = namespace.broker(QueueKind::Quorum).await;
    broker.declare(&["vip_short".to_owned()]).await.unwrap();
    let connection = namespace.connection().await;
    let number = |name: &'static str, value| (name, AMQPValue::LongInt(value));
    let requeue = (
        "x-dead-letter-exchange",
        AMQPValue::LongString(namespace.full("requeue.exchange").into()),
    );

    let delay = |ttl_ms| vec![number("x-message-ttl", ttl_ms), requeue.clone()];
    let queues = [
        ("dlq", vec![number("x-max-length", 100_000)]),
        ("progress", vec![number("x-max-length", 100_000)]),
        ("wait.250", delay(250)),
        ("wait.2048000", delay(2_048_000)),
    ];

    for (queue, settings) in queues {
        let mut arguments = FieldTable::default();
        for (name, value) in settings {
            arguments.insert(name.into(), value);
        }

        let channel = connection.create_channel().await.unwrap();
        let options = QueueDeclareOptions {
            durable: true,
            ..QueueDeclareOptions::default()
        };
        let refusal = channel
            .queue_declare(namespace.full(queue).into(), options, arguments)
            .await;

        let why = refusal.unwrap_err().to_string();
        assert!(
            why.contains("x-queue-type"),
            "only the queue type differs: {queue}: {why}"
        );
    }
}

async fn a_deleted_queue_is_declared_again() {
    let namespace = Namespace::new();
    let broker = namespace.broker(QueueKind::Classic).await;
    let mut consumer = broker.hints("vip_short");
    let bare = Bare::connect(&namespace).await;
    broker.declare(&["vip_short".to_owned()]).await.unwrap();

    for _ in 0..3 {
        let published = hint("vip_short");
        // The queue is deleted under the consumer. Until it is back, hints are refused or unknown;
        // publishing never blocks.
        let receive = consumer.next(4);

        let publish = async {
            bare.channel
                .queue_delete(
                    namespace.full("vip_short").into(),
                    QueueDeleteOptions::default(),
                )
                .await
                .unwrap();

            while !broker.publish_hints(std::slice::from_ref(&published)).await[0].is_confirmed() {
                tokio::task::yield_now().await;
            }
        };

        let both = async { futures::join!(receive, publish) };
        let (received, ()) = tokio::time::timeout(Duration::from_secs(60), both)
            .await
            .unwrap();
        assert_eq!(received[0].hint, published);

        consumer
            .answered(
                &received
                    .iter()
                    .map(|delivery| delivery.tag)
                    .collect::<Vec<_>>(),
            )
            .await;
    }

    // Without a consumer, the next query declares it again.
    drop(consumer);
    bare.channel
        .queue_delete(
            namespace.full("vip_short").into(),
            QueueDeleteOptions::default(),
        )
        .await
        .unwrap();

    let refused = broker.publish_hints(&[hint("vip_short")]).await;
    assert!(
        matches!(refused[..], [Published::Refused(_) | Published::Confirmed]),
        "{refused:?}"
    );
    broker.depth("vip_short").await.unwrap();
    assert_eq!(
        broker.publish_hints(&[hint("vip_short")]).await,
        [Published::Confirmed]
    );
}

async fn a_purged_queue_is_empty_and_still_works() {
    let namespace = Namespace::new();
    let broker = namespace.broker(QueueKind::Classic).await;
    broker.declare(&["vip_short".to_owned()]).await.unwrap();
    broker
        .publish_hints(&[hint("vip_short"), hint("vip_short")])
        .await;
    let bare = Bare::connect(&namespace).await;

    bare.channel
        .queue_purge(
            namespace.full("vip_short").into(),
            QueuePurgeOptions::default(),
        )
        .await
        .unwrap();

    let published = hint("vip_short");
    broker.publish_hints(std::slice::from_ref(&published)).await;

    let mut consumer = broker.hints("vip_short");
    let received = tokio::time::timeout(Duration::from_secs(60), consumer.next(8))
        .await
        .unwrap();
    assert_eq!(received[0].hint, published);
}

async fn a_wrong_password_is_reported_without_showing_it() {
    let url = super::fresh::server_url();
    let (scheme, rest) = url.split_once("://").unwrap();
    let url = format!(
        "{scheme}://unknown:hush-hush@{}",
        rest.rsplit_once('@').unwrap().1
    );
    let broker = RabbitBroker::connect(&url, RabbitOptions::default()).unwrap();
    let refusal = broker.declare(&[]).await.unwrap_err();
    let shown = format!("{refusal:?} {:?} {broker:?}", broker.state());
    assert!(shown.contains("ACCESS_REFUSED"), "{shown}");

    assert!(!shown.contains("hush"), "{shown}");
}

async fn a_missing_server_fails_fast() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);

    let broker = RabbitBroker::connect(
        &format!("amqp://127.0.0.1:{port}"),
        RabbitOptions::default(),
    )
    .unwrap();

    let all = async {
        assert!(matches!(
            broker.publish_hints(&[hint("vip_short")]).await[..],
            [Published::Unknown(_)]
        ));
        assert!(matches!(
            broker.declare(&[]).await,
            Err(BrokerError::Unavailable(_))
        ));
        assert!(matches!(
            broker.depth("vip_short").await,
            Err(BrokerError::Unavailable(_))
        ));
        broker.signal(Signal::Backlogged { queues: Vec::new() });
        broker.close().await;
    };

    tokio::time::timeout(Duration::from_secs(30), all)
        .await
        .unwrap();
}
