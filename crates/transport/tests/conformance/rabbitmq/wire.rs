//! What others see of us at the server, what we make of what others do there, and what a server does to us.

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
        broker::{Bell, BrokerError, ProgressReport, Published, Signal},
    },
    event::{EventKind, MessageBody, OutboxMessage, Topic},
    time::Timestamp,
};
use longhaul_transport::rabbitmq::{LaneKind, RabbitBroker, RabbitOptions};
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
            &name("a_bell_carries_its_headers"),
            a_bell_carries_its_headers,
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
            &name("an_unreadable_bell_is_set_aside_and_counted"),
            an_unreadable_bell_is_set_aside_and_counted,
        ),
        trial(
            &name("an_unreadable_report_is_set_aside"),
            an_unreadable_report_is_set_aside,
        ),
        trial(
            &name("a_signal_reaches_the_other_processes"),
            a_signal_reaches_the_other_processes,
        ),
        trial(
            &name("a_queue_that_is_there_otherwise_is_named"),
            a_queue_that_is_there_otherwise_is_named,
        ),
        trial(
            &name("a_name_that_is_taken_is_refused"),
            a_name_that_is_taken_is_refused,
        ),
        trial(
            &name("a_bell_that_has_waited_is_in_its_own_lane_alone"),
            a_bell_that_has_waited_is_in_its_own_lane_alone,
        ),
        trial(
            &name("beside_quorum_lanes_no_queue_is_classic"),
            beside_quorum_lanes_no_queue_is_classic,
        ),
        trial(
            &name("a_lane_that_was_deleted_is_made_again"),
            a_lane_that_was_deleted_is_made_again,
        ),
        trial(
            &name("a_purged_lane_is_just_empty"),
            a_purged_lane_is_just_empty,
        ),
        trial(
            &name("a_wrong_password_is_told_without_it"),
            a_wrong_password_is_told_without_it,
        ),
        trial(
            &name("a_server_that_is_not_there_fails_fast"),
            a_server_that_is_not_there_fails_fast,
        ),
    ]
}

pub(crate) fn bell(queue: &str) -> Bell {
    Bell {
        task_id: TaskId(random_id()),
        owner: "ann".to_owned(),
        task_type: "novel.write".to_owned(),
        queue: queue.to_owned(),
        priority: 7,
        retry_count: 2,
        submitted_at: Timestamp::from_micros(1_700_000_000_123_456),
        due_at: Timestamp::from_micros(1_700_000_001_000_000),
        looks: 0,
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

async fn a_bell_carries_its_headers() {
    let namespace = Namespace::new();
    let broker = namespace.broker(LaneKind::Classic).await;
    broker.declare(&["vip_short".to_owned()]).await.unwrap();
    let rung = bell("vip_short");
    assert_eq!(
        broker.ring(&[rung.clone(), rung.clone()]).await,
        [Published::Confirmed, Published::Confirmed]
    );
    let bare = Bare::connect(&namespace).await;
    let mut consumer = bare.consume(&namespace.full("vip_short")).await;
    let (first, second) = (next(&mut consumer).await, next(&mut consumer).await);
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
        ("taskId", rung.task_id.to_string()),
        ("userId", "ann".to_owned()),
        ("taskType", "novel.write".to_owned()),
        ("submittedAt", "2023-11-14T22:13:20.123456Z".to_owned()),
        ("x-retry-count", "2".to_owned()),
        ("traceparent", rung.trace_context.unwrap()),
    ];
    for (name, value) in headers {
        assert_eq!(header(&first, name), Some(value), "{name}");
    }
    assert!(
        first.data.len() < 1_024,
        "a bell carries ids and nothing else"
    );
}

async fn an_event_is_a_cloud_event() {
    let namespace = Namespace::new();
    let broker = namespace.broker(LaneKind::Classic).await;
    let bare = Bare::connect(&namespace).await;
    let exchange = namespace.full("events.exchange");
    let mut wanted = bare.subscribe(&exchange, "task.dead_lettered.#").await;
    let mut unwanted = bare.subscribe(&exchange, "task.completed.#").await;
    let told = message(Topic::Event);
    assert_eq!(
        broker.publish(std::slice::from_ref(&told)).await,
        [Published::Confirmed]
    );
    let heard = next(&mut wanted).await;
    assert_eq!(heard.routing_key.as_str(), "task.dead_lettered.novel.write");
    let content_type = heard.properties.content_type().as_ref().unwrap();
    assert_eq!(
        content_type.as_str(),
        "application/cloudevents+json; charset=UTF-8"
    );
    let task_id = told.task_id.to_string();
    let expected = json!({
        "specversion": "1.0",
        "id": format!("{task_id}-12-dead_lettered"),
        "source": format!("/longhaul/{}", namespace.name),
        "type": "dev.longhaul.task.dead_lettered",
        "subject": task_id,
        "time": "2023-11-14T22:13:20.123456Z",
        "datacontenttype": "application/json",
        "data": {
            "taskId": task_id, "userId": "ann", "taskType": "novel.write", "queue": "vip_short", "priority": 4,
            "event": "dead_lettered", "status": "DEAD_LETTER", "attempt": 5, "retryCount": 4, "version": 12,
            "correlationId": "request 7", "error": {"class": "retryable", "message": "the model is away"},
        },
    });
    assert_eq!(
        serde_json::from_slice::<Value>(&heard.data).unwrap(),
        expected
    );
    assert!(futures::poll!(futures::StreamExt::next(&mut unwanted)).is_pending());
}

async fn a_dead_letter_is_in_the_dead_letter_queue() {
    let namespace = Namespace::new();
    let broker = namespace.broker(LaneKind::Classic).await;
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
    // Nobody to take it: a dead letter is refused, not dropped, and an event is not asked for.
    bare.channel
        .queue_delete(namespace.full("dlq").into(), QueueDeleteOptions::default())
        .await
        .unwrap();
    let answers = broker.publish(&[dead, message(Topic::Event)]).await;
    assert!(matches!(answers[0], Published::Refused(_)), "{answers:?}");
    assert_eq!(answers[1], Published::Confirmed);
}

async fn an_unreadable_bell_is_set_aside_and_counted() {
    for lanes in [LaneKind::Classic, LaneKind::Quorum] {
        let namespace = Namespace::new();
        let broker = namespace.broker(lanes).await;
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
        let good = bell("vip_short");
        assert_eq!(
            broker.ring(std::slice::from_ref(&good)).await,
            [Published::Confirmed]
        );
        // The good one overtakes those without a priority.
        let mut consumer = broker.bells("vip_short");
        let mut heard = Vec::new();
        let mut letters = bare.consume(&namespace.full("dlq")).await;
        let mut aside = Vec::new();
        while heard.is_empty() || aside.len() < bad.len() {
            tokio::select! {
                more = consumer.next(8) => heard.extend(more.into_iter().map(|delivery| delivery.bell)),
                letter = next(&mut letters) => aside.push(letter.data),
            }
        }
        assert_eq!(heard, [good]);
        assert!(bad.iter().all(|body| aside.contains(body)));
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

async fn an_unreadable_report_is_set_aside() {
    let namespace = Namespace::new();
    let broker = namespace.broker(LaneKind::Classic).await;
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
    let (here, there) = (
        namespace.broker(LaneKind::Classic).await,
        namespace.broker(LaneKind::Classic).await,
    );
    let (mut of_here, mut of_there) = (here.signals(), there.signals());
    let told = Signal::Cancelled {
        task_ids: vec![TaskId(random_id())],
    };
    let last = Signal::QueueChanged {
        queue: "vip_short".to_owned(),
    };
    here.signal(told.clone());
    here.signal(last.clone());
    for listener in [&mut of_here, &mut of_there] {
        for signal in [&told, &last] {
            let heard = tokio::time::timeout(Duration::from_secs(60), listener.next())
                .await
                .unwrap();
            assert_eq!(heard.as_ref(), Some(signal), "each signal once");
        }
    }
}

async fn a_queue_that_is_there_otherwise_is_named() {
    let namespace = Namespace::new();
    let bare = Bare::connect(&namespace).await;
    let durable = QueueDeclareOptions {
        durable: true,
        ..QueueDeclareOptions::default()
    };
    let lane = namespace.full("vip_short");
    bare.channel
        .queue_declare(lane.clone().into(), durable, FieldTable::default())
        .await
        .unwrap();
    let broker = namespace.broker(LaneKind::Classic).await;
    let BrokerError::Topology(why) = broker.declare(&["vip_short".to_owned()]).await.unwrap_err()
    else {
        panic!("it differs")
    };
    assert!(
        why.contains(&lane) && why.contains("x-") && why.contains("Delete it"),
        "{why}"
    );
    // The other queues are not hurt by it.
    assert_eq!(broker.depth("free_default").await, Ok(0));
    assert_eq!(
        broker.ring(&[bell("free_default")]).await,
        [Published::Confirmed]
    );
    bare.channel
        .queue_delete(lane.into(), QueueDeleteOptions::default())
        .await
        .unwrap();
    broker.declare(&["vip_short".to_owned()]).await.unwrap();
    // What every link needs is named by the state, and mended by whoever mends it.
    let other = Namespace::new();
    let bare = Bare::connect(&other).await;
    bare.channel
        .queue_declare(other.full("dlq").into(), durable, FieldTable::default())
        .await
        .unwrap();
    let broker = other.connecting(LaneKind::Classic);
    let BrokerError::Topology(why) = broker.declare(&[]).await.unwrap_err() else {
        panic!("it differs")
    };
    assert!(why.contains(&other.full("dlq")), "{why}");
    bare.channel
        .queue_delete(other.full("dlq").into(), QueueDeleteOptions::default())
        .await
        .unwrap();
    super::fresh::until_up(&*broker).await;
}

async fn a_name_that_is_taken_is_refused() {
    let namespace = Namespace::new();
    let broker = namespace.broker(LaneKind::Classic).await;
    for queue in ["dlq", "progress", "wait.250"] {
        let refusal = broker.declare(&[queue.to_owned()]).await.unwrap_err();
        assert!(
            matches!(&refusal, BrokerError::Topology(why) if why.contains(queue)),
            "{refusal}"
        );
        assert!(matches!(
            broker.ring(&[bell(queue)]).await[..],
            [Published::Refused(_)]
        ));
    }
}

async fn a_bell_that_has_waited_is_in_its_own_lane_alone() {
    for lanes in [LaneKind::Classic, LaneKind::Quorum] {
        let namespace = Namespace::new();
        let broker = namespace.broker(lanes).await;
        // The first rung waits for 250 ms; the others are what a key might begin with.
        let others = ["250", "wait"];
        broker
            .declare(&["vip_short", "250", "wait"].map(str::to_owned))
            .await
            .unwrap();
        let waiting = bell("vip_short");
        assert_eq!(
            broker.ring_later(&[(waiting.clone(), 250)]).await,
            [Published::Confirmed]
        );
        let mut consumer = broker.bells("vip_short");
        let heard = tokio::time::timeout(Duration::from_secs(60), consumer.next(8))
            .await
            .unwrap();
        assert_eq!(heard[0].bell, waiting);
        for queue in others {
            let own = bell(queue);
            assert_eq!(
                broker.ring(std::slice::from_ref(&own)).await,
                [Published::Confirmed]
            );
            let mut consumer = broker.bells(queue);
            let heard = tokio::time::timeout(Duration::from_secs(60), consumer.next(8))
                .await
                .unwrap();
            assert_eq!(heard[0].bell, own, "{queue}");
        }
    }
}

async fn beside_quorum_lanes_no_queue_is_classic() {
    let namespace = Namespace::new();
    let broker = namespace.broker(LaneKind::Quorum).await;
    broker.declare(&["vip_short".to_owned()]).await.unwrap();
    let connection = namespace.connection().await;
    let number = |name: &'static str, value| (name, AMQPValue::LongInt(value));
    let requeue = (
        "x-dead-letter-exchange",
        AMQPValue::LongString(namespace.full("requeue.exchange").into()),
    );
    let rung = |ttl_ms| vec![number("x-message-ttl", ttl_ms), requeue.clone()];
    let queues = [
        ("dlq", vec![number("x-max-length", 100_000)]),
        ("progress", vec![number("x-max-length", 100_000)]),
        ("wait.250", rung(250)),
        ("wait.2048000", rung(2_048_000)),
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
            "all else is the same: {queue}: {why}"
        );
    }
}

async fn a_lane_that_was_deleted_is_made_again() {
    let namespace = Namespace::new();
    let broker = namespace.broker(LaneKind::Classic).await;
    let mut consumer = broker.bells("vip_short");
    let bare = Bare::connect(&namespace).await;
    broker.declare(&["vip_short".to_owned()]).await.unwrap();
    for _ in 0..3 {
        let rung = bell("vip_short");
        // The queue is deleted under the consumer; until it is back bells are refused or unknown, never hung.
        let listen = consumer.next(4);
        let ring = async {
            bare.channel
                .queue_delete(
                    namespace.full("vip_short").into(),
                    QueueDeleteOptions::default(),
                )
                .await
                .unwrap();
            while !broker.ring(std::slice::from_ref(&rung)).await[0].is_confirmed() {
                tokio::task::yield_now().await;
            }
        };
        let both = async { futures::join!(listen, ring) };
        let (heard, ()) = tokio::time::timeout(Duration::from_secs(60), both)
            .await
            .unwrap();
        assert_eq!(heard[0].bell, rung);
        consumer
            .answered(
                &heard
                    .iter()
                    .map(|delivery| delivery.tag)
                    .collect::<Vec<_>>(),
            )
            .await;
    }
    // Without a consumer the next one who asks makes it again.
    drop(consumer);
    bare.channel
        .queue_delete(
            namespace.full("vip_short").into(),
            QueueDeleteOptions::default(),
        )
        .await
        .unwrap();
    let refused = broker.ring(&[bell("vip_short")]).await;
    assert!(
        matches!(refused[..], [Published::Refused(_) | Published::Confirmed]),
        "{refused:?}"
    );
    broker.depth("vip_short").await.unwrap();
    assert_eq!(
        broker.ring(&[bell("vip_short")]).await,
        [Published::Confirmed]
    );
}

async fn a_purged_lane_is_just_empty() {
    let namespace = Namespace::new();
    let broker = namespace.broker(LaneKind::Classic).await;
    broker.declare(&["vip_short".to_owned()]).await.unwrap();
    broker.ring(&[bell("vip_short"), bell("vip_short")]).await;
    let bare = Bare::connect(&namespace).await;
    bare.channel
        .queue_purge(
            namespace.full("vip_short").into(),
            QueuePurgeOptions::default(),
        )
        .await
        .unwrap();
    let rung = bell("vip_short");
    broker.ring(std::slice::from_ref(&rung)).await;
    let mut consumer = broker.bells("vip_short");
    let heard = tokio::time::timeout(Duration::from_secs(60), consumer.next(8))
        .await
        .unwrap();
    assert_eq!(heard[0].bell, rung);
}

async fn a_wrong_password_is_told_without_it() {
    let url = super::fresh::server_url();
    let (scheme, rest) = url.split_once("://").unwrap();
    let url = format!(
        "{scheme}://nobody:hush-hush@{}",
        rest.rsplit_once('@').unwrap().1
    );
    let broker = RabbitBroker::connect(&url, RabbitOptions::default()).unwrap();
    let refusal = broker.declare(&[]).await.unwrap_err();
    let shown = format!("{refusal:?} {:?} {broker:?}", broker.state());
    assert!(shown.contains("ACCESS_REFUSED"), "{shown}");
    assert!(!shown.contains("hush"), "{shown}");
}

async fn a_server_that_is_not_there_fails_fast() {
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
            broker.ring(&[bell("vip_short")]).await[..],
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
        broker.signal(Signal::Held { queues: Vec::new() });
        broker.close().await;
    };
    tokio::time::timeout(Duration::from_secs(30), all)
        .await
        .unwrap();
}
