//! Everything besides hints and signals: published events, reported progress and traffic counts.

use longhaul_domain::{
    Json, Lease, LeaseToken, Status,
    contract::broker::{Broker, ProgressInbox, ProgressReport, Published, Traffic},
    event::{EventKind, MessageBody, OutboxMessage, Topic},
};

use super::{BrokerFactory, QUEUE, declare, hints, publish, receive, tags};
use crate::suite::{Case, cases, random_task_id, within_deadline};

pub(super) fn cases() -> Vec<Case<BrokerFactory>> {
    cases![
        events_and_dead_letters_are_accepted,
        progress_is_delivered_as_it_was_reported,
        answered_progress_is_not_delivered_again,
        a_dropped_inbox_returns_unanswered_progress,
        the_traffic_of_a_queue_is_counted,
    ]
}

fn report(sequence: u64) -> ProgressReport {
    let token = LeaseToken(random_task_id().0);
    ProgressReport {
        lease: Lease {
            task_id: random_task_id(),
            attempt: 3,
            token,
        },
        sequence,
        progress: Json::parse(
            "progress",
            format!("{{\"percent\": {sequence}.50, \"note\": \"ž\"}}"),
        )
        .unwrap(),
        is_full: sequence.is_multiple_of(2),
    }
}

async fn report_all(broker: &dyn Broker, reports: &[ProgressReport]) {
    let answers = within_deadline(broker.report_progress(reports)).await;
    assert_eq!(answers, vec![Published::Confirmed; reports.len()]);
}

async fn receive_progress(
    inbox: &mut Box<dyn ProgressInbox>,
    count: usize,
) -> Vec<(u64, ProgressReport)> {
    let mut received = Vec::new();
    while received.len() < count {
        let most = count - received.len();
        let next = within_deadline(inbox.next(most)).await;
        assert!(!next.is_empty() && next.len() <= most);
        received.extend(next);
    }

    received
}

async fn events_and_dead_letters_are_accepted(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[]).await;
    let message = |version: u64| OutboxMessage {
        topic: if version.is_multiple_of(3) {
            Topic::DeadLetter
        } else {
            Topic::Event
        },
        task_id: random_task_id(),
        body: MessageBody {
            event: EventKind::Completed,
            user_id: "Žofie".to_owned(),
            task_type: "novel.write".to_owned(),
            queue: QUEUE.to_owned(),
            priority: 1,
            status: Status::Completed,
            attempt: 1,
            retry_count: 0,
            version,
            due_at: 1_700_000_000_000_000,
            occurred_at: 0,
            error: None,
            error_class: None,
            correlation_id: None,
            trace_context: None,
        },
    };

    let messages: Vec<_> = (0..1_500).map(message).collect();
    assert_eq!(
        within_deadline(broker.publish(&messages)).await,
        vec![Published::Confirmed; 1_500]
    );
    assert_eq!(within_deadline(broker.publish(&[])).await, []);
}

async fn progress_is_delivered_as_it_was_reported(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[]).await;
    let reports: Vec<_> = (1..=300).map(report).collect();
    report_all(&*broker, &reports).await;
    let received = receive_progress(&mut broker.progress_inbox(), 300).await;

    assert_eq!(
        received
            .into_iter()
            .map(|(_, report)| report)
            .collect::<Vec<_>>(),
        reports
    );
}

async fn answered_progress_is_not_delivered_again(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[]).await;
    report_all(&*broker, &[report(1), report(2)]).await;
    let mut inbox = broker.progress_inbox();
    let tags: Vec<_> = receive_progress(&mut inbox, 2)
        .await
        .into_iter()
        .map(|(tag, _)| tag)
        .collect();

    inbox.answered(&tags).await;
    inbox.answered(&[]).await;
    inbox.answered(&tags).await;
    drop(inbox);

    let last = report(3);
    report_all(&*broker, std::slice::from_ref(&last)).await;
    assert_eq!(
        receive_progress(&mut broker.progress_inbox(), 1).await[0].1,
        last
    );
}

async fn a_dropped_inbox_returns_unanswered_progress(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[]).await;
    let reports = [report(1), report(2), report(3)];
    report_all(&*broker, &reports).await;
    let mut dropped = broker.progress_inbox();
    let received = receive_progress(&mut dropped, 3).await;
    dropped.answered(&[received[0].0]).await;
    drop(dropped);

    let again = receive_progress(&mut broker.progress_inbox(), 2).await;
    assert_eq!([&again[0].1, &again[1].1], [&reports[1], &reports[2]]);
}

async fn the_traffic_of_a_queue_is_counted(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[QUEUE]).await;
    publish(&*broker, &hints(10)).await;
    let mut consumer = broker.hints(QUEUE);
    let received = receive(&mut consumer, 4).await;

    consumer.answered(&tags(&received[..3])).await;
    let traffic = broker
        .traffic()
        .into_iter()
        .find(|(name, _)| name == &format!("tasks.{QUEUE}"));

    let (
        _,
        Traffic {
            published,
            delivered,
            acked,
            nacked,
            returned,
        },
    ) = traffic.expect("the traffic is listed by queue name");

    assert_eq!((published, acked, nacked, returned), (10, 3, 0, 0));
    assert!((4..=10).contains(&delivered), "{delivered}");
}
