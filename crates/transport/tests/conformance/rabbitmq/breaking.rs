//! A RabbitMQ server that is killed, wiped, frozen or out of memory during work.

use std::mem::ManuallyDrop;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::Trial;
use longhaul_domain::{
    TaskId,
    contract::{
        Broker,
        broker::{BrokerState, Hint, HintConsumer, Published, Signal},
        event_bus::{EventBus, EventStream, Received, Subscription},
    },
    event::TaskEvent,
};
use longhaul_testkit::own_server::OwnServer;
use longhaul_transport::{
    local::MemoryEventBus,
    rabbitmq::{QueueKind, RabbitBroker, RabbitEventBus},
};
use tokio::task::block_in_place;

use super::{
    bare::Bare,
    fresh::{Namespace, until_down, until_up},
    remote_events::event,
    wire::hint,
};
use crate::{fresh::random_id, trial};

pub(crate) fn trials() -> Vec<Trial> {
    let name = |sentence: &str| format!("rabbitmq::breaking::{sentence}");
    vec![
        trial(
            &name("a_killed_server_has_what_it_confirmed_and_everything_is_rebuilt"),
            a_killed_server_has_what_it_confirmed,
        ),
        trial(
            &name("a_wiped_server_is_set_up_again_by_itself"),
            a_wiped_server_is_set_up_again,
        ),
        trial(
            &name("a_frozen_server_delays_no_caller"),
            a_frozen_server_delays_no_caller,
        ),
        trial(
            &name("a_queue_of_a_server_that_is_down_affects_no_other_queue"),
            a_queue_that_is_down,
        ),
        trial(
            &name("a_server_without_memory_delivers_but_takes_nothing"),
            a_server_without_memory,
        ),
    ]
}

async fn within_deadline<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future)
        .await
        .unwrap()
}

/// The link notices silence after four seconds. The rest is for a busy machine.
const NOTICED_WITHIN: Duration = Duration::from_secs(20);

/// Two processes on one server. Each consumes a queue, and one listens to the events of the other.
struct Setup {
    here: Arc<RabbitBroker>,
    there: Arc<RabbitBroker>,
    consumers: [Box<dyn HintConsumer>; 2],
    bus_here: RabbitEventBus,
    stream: Box<dyn EventStream>,
    published: Vec<TaskId>,
    sent_events: Vec<TaskEvent>,
    _bus_there: RabbitEventBus,
    /// Not cleaned up: the server may be frozen, and is removed with its case.
    namespace: ManuallyDrop<Namespace>,
    server: OwnServer,
}

const QUEUES: [&str; 2] = ["vip_short", "free_default"];

impl Setup {
    async fn new(name: &'static str, kind: QueueKind) -> Self {
        let server = block_in_place(|| OwnServer::start("rabbitmq", name));
        let namespace = ManuallyDrop::new(Namespace::at(&server.url));
        let brokers = (namespace.broker(kind).await, namespace.broker(kind).await);
        Self::of(server, namespace, brokers).await
    }

    /// Like [`Self::new`], with the timeouts of a node for a silent server.
    async fn with_node_timeouts(name: &'static str, kind: QueueKind) -> Self {
        let server = block_in_place(|| OwnServer::start("rabbitmq", name));
        let namespace = ManuallyDrop::new(Namespace::at(&server.url));
        let brokers = (
            namespace.broker_with_node_timeouts(kind).await,
            namespace.broker_with_node_timeouts(kind).await,
        );
        Self::of(server, namespace, brokers).await
    }

    async fn of(
        server: OwnServer,
        namespace: ManuallyDrop<Namespace>,
        (here, there): (Arc<RabbitBroker>, Arc<RabbitBroker>),
    ) -> Self {
        let bus_here = bus(&here).await;
        let bus_there = bus(&there).await;
        let stream = bus_there.subscribe(Subscription::default());

        let consumers = [here.hints(QUEUES[0]), there.hints(QUEUES[1])];
        let queues = QUEUES.map(str::to_owned);

        within_deadline(async {
            while here.declare(&queues).await.is_err() {
                until_up(&*here).await;
            }
        })
        .await;

        let published = Vec::new();
        let sent_events = Vec::new();
        Self {
            here,
            there,
            consumers,
            bus_here,
            stream,
            published,
            sent_events,
            _bus_there: bus_there,
            namespace,
            server,
        }
    }

    /// Hints go both ways, signals and events from here to there, without a further declaration. On
    /// a busy machine a link may break, so everything is published again until it arrives.
    async fn assert_works(&mut self) {
        let [first, second] = &mut self.consumers;
        for (dispatcher, consumer, queue) in [
            (&self.there, first, QUEUES[0]),
            (&self.here, second, QUEUES[1]),
        ] {
            let published = hint(queue);
            self.published.push(published.task_id);
            publish_until_confirmed(dispatcher, &published).await;
            let received = receive_until(&mut **consumer, published.task_id).await;
            assert!(received.iter().all(|id| self.published.contains(id)));
        }

        let mut signals = self.there.signals();
        let cancelled = Signal::Cancelled {
            task_ids: vec![TaskId(random_id())],
        };
        let received = async { while signals.next().await.unwrap() != cancelled {} };

        send_until_received(|| self.here.signal(cancelled.clone()), received).await;
        let event = event(1);
        self.sent_events.push(event.clone());
        let stream = &mut self.stream;
        let known = &self.sent_events;

        let received = async {
            loop {
                match stream.next().await.unwrap() {
                    Received::Missed(_) => {}
                    Received::Event(received) if received == event => return,
                    Received::Event(other) => assert!(known.contains(&other), "{other:?}"),
                }
            }
        };

        send_until_received(|| self.bus_here.publish(event.clone()), received).await;
    }

    /// Breaks the server while both consumers wait, and checks what the callers see.
    async fn break_while_waiting(&mut self, break_it: impl FnOnce(&mut OwnServer)) {
        let bare = Bare::connect(&self.namespace).await;
        let [first, second] = &mut self.consumers;
        let breaking = async {
            for queue in QUEUES {
                bare.until_consumed(&self.namespace.full(queue)).await;
            }

            block_in_place(|| break_it(&mut self.server));
            let both = async { futures::join!(until_down(&*self.here), until_down(&*self.there)) };
            let both_noticed = tokio::time::timeout(NOTICED_WITHIN, both).await;
            assert!(
                both_noticed.is_ok(),
                "the loss is noticed long before a missed heartbeat"
            );
            assert!(matches!(
                self.here.publish_hints(&[hint(QUEUES[0])]).await[..],
                [Published::Unknown(_)]
            ));

            assert!(self.here.depth(QUEUES[0]).await.is_err());
        };

        tokio::select! {
            () = within_deadline(breaking) => {}
            () = receive_nothing_new(&mut **first, &self.published) => {}
            () = receive_nothing_new(&mut **second, &self.published) => {}
        }
    }

    async fn until_up(&self) {
        until_up(&*self.here).await;
        until_up(&*self.there).await;
    }

    /// Runs the server's own control tool.
    fn control(&self, arguments: &[&str]) {
        let home = self.server.home();
        let port = std::fs::read_to_string(home.join("epmd.port")).unwrap();
        let mut control = Command::new("/usr/lib/rabbitmq/bin/rabbitmqctl");
        control
            .env("HOME", home.join("data"))
            .env("ERL_EPMD_PORT", port.trim())
            .env("ERL_AFLAGS", "-start_epmd false");
        let output = control
            .args(["--node", "longhaul@localhost"])
            .args(arguments)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

/// Receives hints up to this one. A hint that was answered just before a link broke comes again.
async fn receive_until(consumer: &mut dyn HintConsumer, task_id: TaskId) -> Vec<TaskId> {
    let mut received = Vec::new();
    while !received.contains(&task_id) {
        let next = within_deadline(consumer.next(4)).await;
        consumer
            .answered(&next.iter().map(|delivery| delivery.tag).collect::<Vec<_>>())
            .await;
        received.extend(next.iter().map(|delivery| delivery.hint.task_id));
    }

    received
}

/// Receives without end. A hint that was published twice is received twice.
async fn receive_nothing_new(consumer: &mut dyn HintConsumer, published: &[TaskId]) {
    loop {
        let received = consumer.next(4).await;
        assert!(
            received
                .iter()
                .all(|delivery| published.contains(&delivery.hint.task_id)),
            "nothing new was published"
        );

        consumer
            .answered(
                &received
                    .iter()
                    .map(|delivery| delivery.tag)
                    .collect::<Vec<_>>(),
            )
            .await;
    }
}

async fn publish_until_confirmed(dispatcher: &RabbitBroker, hint: &Hint) {
    within_deadline(async {
        while !dispatcher.publish_hints(std::slice::from_ref(hint)).await[0].is_confirmed() {
            until_up(dispatcher).await;
        }
    })
    .await;
}

/// Sends again every other second: a broadcast is lost with a link that breaks.
async fn send_until_received(send: impl Fn(), received: impl Future<Output = ()>) {
    let send_again = async {
        let mut ticks = tokio::time::interval(Duration::from_secs(2));
        loop {
            ticks.tick().await;
            send();
        }
    };
    within_deadline(async {
        tokio::select! {
            () = received => {}
            () = send_again => {}
        }
    })
    .await;
}

async fn bus(broker: &Arc<RabbitBroker>) -> RabbitEventBus {
    let bus = RabbitEventBus::new(broker, MemoryEventBus::new(64));
    bus.listen().await;
    bus
}

async fn a_killed_server_has_what_it_confirmed() {
    let mut setup = Setup::new("rabbitmq-killed", QueueKind::Classic).await;
    setup.here.declare(&["another".to_owned()]).await.unwrap();
    let waiting: Vec<_> = (0..300).map(|_| hint("another")).collect();
    assert_eq!(
        setup.here.publish_hints(&waiting).await,
        vec![Published::Confirmed; waiting.len()]
    );

    for _ in 0..2 {
        setup.assert_works().await;
        setup.break_while_waiting(OwnServer::kill).await;
        block_in_place(|| setup.server.start_again());
        setup.until_up().await;
        assert_eq!(
            setup.here.depth("another").await,
            Ok(300),
            "confirmed hints are on the disk"
        );
    }

    setup.assert_works().await;
    assert_eq!(
        within_deadline(setup.here.hints("another").next(300)).await[0].hint,
        waiting[0]
    );
}

async fn a_wiped_server_is_set_up_again() {
    for (name, kind) in [
        ("rabbitmq-wiped", QueueKind::Classic),
        ("rabbitmq-wiped-quorum", QueueKind::Quorum),
    ] {
        let mut setup = Setup::new(name, kind).await;
        setup.assert_works().await;
        setup.break_while_waiting(OwnServer::kill).await;
        block_in_place(|| {
            setup.server.wipe();
            setup.server.start_again();
        });
        setup.until_up().await;
        assert_eq!(setup.there.depth(QUEUES[0]).await, Ok(0));
        setup.assert_works().await;
    }
}

async fn a_frozen_server_delays_no_caller() {
    let mut setup = Setup::with_node_timeouts("rabbitmq-frozen", QueueKind::Classic).await;
    setup.assert_works().await;
    setup
        .break_while_waiting(|server| server.signal("STOP"))
        .await;
    setup.server.signal("CONT");
    setup.until_up().await;
    setup.assert_works().await;
}

/// In a cluster, a classic queue whose server is down still exists, and declaring it answers 404.
/// This test edits the tables of a single server to the same effect.
async fn a_queue_that_is_down() {
    let mut setup = Setup::new("rabbitmq-absent", QueueKind::Classic).await;
    setup.assert_works().await;
    let (_, host) = setup.server.url.rsplit_once('/').unwrap();
    let name = format!(
        "rabbit_misc:r(<<\"{host}\">>, queue, <<\"{}\">>)",
        setup.namespace.full(QUEUES[0])
    );
    let away = format!("mnesia:dirty_delete(rabbit_queue, {name}).");
    let back = format!(
        "[Q] = mnesia:dirty_read(rabbit_durable_queue, {name}), mnesia:dirty_write(rabbit_queue, \
         Q)."
    );

    let both = [Arc::clone(&setup.here), Arc::clone(&setup.there)];
    let down = both.map(|broker| tokio::spawn(async move { until_down(&*broker).await }));
    block_in_place(|| {
        setup.control(&["eval", &away]);
        setup.control(&["close_all_connections", "--global", "gone"]);
    });

    for broken in down {
        broken.await.unwrap();
    }

    setup.until_up().await;
    assert!(setup.here.depth(QUEUES[0]).await.is_err(), "it is away");
    let published = hint(QUEUES[1]);
    assert_eq!(
        setup
            .here
            .publish_hints(std::slice::from_ref(&published))
            .await,
        [Published::Confirmed]
    );

    setup.published.push(published.task_id);
    let [first, second] = &mut setup.consumers;

    // Waiting for the queue that is down does not affect the other queue.
    tokio::select! {
        received = receive_until(&mut **second, published.task_id) => {
            assert!(received.iter().all(|id| setup.published.contains(id)));
        }
        _ = first.next(4) => panic!("the queue is down"),
    }
    block_in_place(|| setup.control(&["eval", &back]));
    setup.assert_works().await;
    assert_eq!(setup.here.state(), BrokerState::Up);
}

async fn a_server_without_memory() {
    let mut setup = Setup::new("rabbitmq-full", QueueKind::Classic).await;
    setup.assert_works().await;

    let waiting = hint(QUEUES[0]);
    assert_eq!(
        setup
            .here
            .publish_hints(std::slice::from_ref(&waiting))
            .await,
        [Published::Confirmed]
    );

    block_in_place(|| setup.control(&["set_vm_memory_high_watermark", "absolute", "1MB"]));

    // The next publish fails, and no publish waits for long.
    within_deadline(async {
        while matches!(setup.here.state(), BrokerState::Up) {
            let answer = setup.here.publish_hints(&[hint(QUEUES[1])]).await;
            assert!(
                matches!(answer[..], [Published::Unknown(_) | Published::Confirmed]),
                "{answer:?}"
            );
        }
    })
    .await;

    let why = until_down(&*setup.here).await;
    assert!(
        why.contains("takes no messages") && why.contains("memory"),
        "{why}"
    );

    let received = within_deadline(setup.consumers[0].next(4)).await;
    assert_eq!(received[0].hint, waiting, "the server still delivers");
    setup.consumers[0].answered(&[received[0].tag]).await;
    assert_eq!(within_deadline(setup.here.depth("vip_short")).await, Ok(0));

    block_in_place(|| setup.control(&["set_vm_memory_high_watermark", "absolute", "512MB"]));
    setup.until_up().await;

    // Hints that were written while the server was blocked may still arrive, so other queues are
    // used from here.
    setup.consumers = [setup.here.hints("a"), setup.there.hints("b")];
    setup
        .here
        .declare(&["a".to_owned(), "b".to_owned()])
        .await
        .unwrap();

    let published = hint("a");
    assert_eq!(
        setup
            .there
            .publish_hints(std::slice::from_ref(&published))
            .await,
        [Published::Confirmed]
    );
    assert_eq!(
        within_deadline(setup.consumers[0].next(4)).await[0].hint,
        published
    );
}
