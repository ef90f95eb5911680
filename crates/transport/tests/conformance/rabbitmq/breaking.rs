//! A RabbitMQ server that is killed, wiped, frozen and out of memory, in the middle of work.

use std::mem::ManuallyDrop;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::Trial;
use longhaul_domain::{
    TaskId,
    contract::{
        Broker,
        broker::{Bell, Bells, BrokerState, Published, Signal},
        event_bus::{EventBus, EventStream, Heard, Subscription},
    },
    event::TaskEvent,
};
use longhaul_testkit::own_server::OwnServer;
use longhaul_transport::{
    local::MemoryEventBus,
    rabbitmq::{LaneKind, RabbitBroker, RabbitEventBus},
};
use tokio::task::block_in_place;

use super::{
    bare::Bare,
    fresh::{Namespace, until_down, until_up},
    news::event,
    wire::bell,
};
use crate::{fresh::random_id, trial};

pub(crate) fn trials() -> Vec<Trial> {
    let name = |sentence: &str| format!("rabbitmq::breaking::{sentence}");
    vec![
        trial(
            &name("a_killed_server_keeps_what_it_confirmed_and_all_is_rebuilt"),
            a_killed_server_keeps_its_word,
        ),
        trial(
            &name("a_wiped_server_is_set_up_anew_without_being_asked"),
            a_wiped_server_is_set_up_anew,
        ),
        trial(
            &name("a_frozen_server_holds_nobody_up"),
            a_frozen_server_holds_nobody_up,
        ),
        trial(
            &name("a_lane_of_a_server_that_is_away_takes_no_other_with_it"),
            a_lane_that_is_away,
        ),
        trial(
            &name("a_server_without_memory_hands_out_and_takes_nothing"),
            a_server_without_memory,
        ),
    ]
}

async fn within_patience<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future)
        .await
        .unwrap()
}

/// Silence is noticed after four seconds; the rest is for a busy machine.
const NOTICED_WITHIN: Duration = Duration::from_secs(20);

/// Two processes on one server, each with a consumer of a lane, and one that listens to the other.
struct Scene {
    here: Arc<RabbitBroker>,
    there: Arc<RabbitBroker>,
    consumers: [Box<dyn Bells>; 2],
    bus_here: RabbitEventBus,
    stream: Box<dyn EventStream>,
    rung: Vec<TaskId>,
    told: Vec<TaskEvent>,
    _bus_there: RabbitEventBus,
    /// Nobody cleans up on a server that may be frozen, and goes with its case.
    namespace: ManuallyDrop<Namespace>,
    server: OwnServer,
}

const QUEUES: [&str; 2] = ["vip_short", "free_default"];

impl Scene {
    async fn set(name: &'static str, lanes: LaneKind) -> Self {
        let server = block_in_place(|| OwnServer::start("rabbitmq", name));
        let namespace = ManuallyDrop::new(Namespace::at(&server.url));
        let brokers = (namespace.broker(lanes).await, namespace.broker(lanes).await);
        Self::of(server, namespace, brokers).await
    }

    /// With the patience of nodes: a server that is silent for long is taken for dead.
    async fn set_hastily(name: &'static str, lanes: LaneKind) -> Self {
        let server = block_in_place(|| OwnServer::start("rabbitmq", name));
        let namespace = ManuallyDrop::new(Namespace::at(&server.url));
        let brokers = (
            namespace.hasty_broker(lanes).await,
            namespace.hasty_broker(lanes).await,
        );
        Self::of(server, namespace, brokers).await
    }

    async fn of(
        server: OwnServer,
        namespace: ManuallyDrop<Namespace>,
        (here, there): (Arc<RabbitBroker>, Arc<RabbitBroker>),
    ) -> Self {
        let (bus_here, bus_there) = (bus(&here).await, bus(&there).await);
        let stream = bus_there.subscribe(Subscription::default());
        let consumers = [here.bells(QUEUES[0]), there.bells(QUEUES[1])];
        let queues = QUEUES.map(str::to_owned);
        within_patience(async {
            while here.declare(&queues).await.is_err() {
                until_up(&*here).await;
            }
        })
        .await;
        let (rung, told) = (Vec::new(), Vec::new());
        Self {
            here,
            there,
            consumers,
            bus_here,
            stream,
            rung,
            told,
            _bus_there: bus_there,
            namespace,
            server,
        }
    }

    /// Bells go either way, signals and news from here to there; nobody has declared or opened anything again. On a busy machine
    /// a link may break by the way, and then what went over it is rung and said again.
    async fn assert_works(&mut self) {
        let [first, second] = &mut self.consumers;
        for (ringer, consumer, queue) in [
            (&self.there, first, QUEUES[0]),
            (&self.here, second, QUEUES[1]),
        ] {
            let rung = bell(queue);
            self.rung.push(rung.task_id);
            ring_until_confirmed(ringer, &rung).await;
            let heard = hear_until(&mut **consumer, rung.task_id).await;
            assert!(heard.iter().all(|id| self.rung.contains(id)));
        }
        let mut signals = self.there.signals();
        let told = Signal::Cancelled {
            task_ids: vec![TaskId(random_id())],
        };
        let heard = async { while signals.next().await.unwrap() != told {} };
        say_until_heard(|| self.here.signal(told.clone()), heard).await;
        let news = event(1);
        self.told.push(news.clone());
        let (stream, known) = (&mut self.stream, &self.told);
        let heard = async {
            loop {
                match stream.next().await.unwrap() {
                    Heard::Missed(_) => {}
                    Heard::Event(heard) if heard == news => return,
                    Heard::Event(other) => assert!(known.contains(&other), "{other:?}"),
                }
            }
        };
        say_until_heard(|| self.bus_here.publish(news.clone()), heard).await;
    }

    /// Breaks the server while both consumers wait, and looks at what everybody is told.
    async fn break_while_waiting(&mut self, break_it: impl FnOnce(&mut OwnServer)) {
        let bare = Bare::connect(&self.namespace).await;
        let [first, second] = &mut self.consumers;
        let breaking = async {
            for queue in QUEUES {
                bare.until_consumed(&self.namespace.full(queue)).await;
            }
            block_in_place(|| break_it(&mut self.server));
            let both = async { futures::join!(until_down(&*self.here), until_down(&*self.there)) };
            let noticed = tokio::time::timeout(NOTICED_WITHIN, both).await;
            assert!(
                noticed.is_ok(),
                "it is noticed long before a heartbeat is missed"
            );
            assert!(matches!(
                self.here.ring(&[bell(QUEUES[0])]).await[..],
                [Published::Unknown(_)]
            ));
            assert!(self.here.depth(QUEUES[0]).await.is_err());
        };
        tokio::select! {
            () = within_patience(breaking) => {}
            () = hear_nothing_new(&mut **first, &self.rung) => {}
            () = hear_nothing_new(&mut **second, &self.rung) => {}
        }
    }

    async fn until_up(&self) {
        until_up(&*self.here).await;
        until_up(&*self.there).await;
    }

    /// One word to the server's own tool.
    fn control(&self, words: &[&str]) {
        let home = self.server.home();
        let port = std::fs::read_to_string(home.join("epmd.port")).unwrap();
        let mut control = Command::new("/usr/lib/rabbitmq/bin/rabbitmqctl");
        control
            .env("HOME", home.join("data"))
            .env("ERL_EPMD_PORT", port.trim())
            .env("ERL_AFLAGS", "-start_epmd false");
        let told = control
            .args(["--node", "longhaul@localhost"])
            .args(words)
            .output()
            .unwrap();
        assert!(told.status.success(), "{told:?}");
    }
}

/// Hears everything up to a bell. What was answered just before a link broke comes again.
async fn hear_until(consumer: &mut dyn Bells, task_id: TaskId) -> Vec<TaskId> {
    let mut heard = Vec::new();
    while !heard.contains(&task_id) {
        let next = within_patience(consumer.next(4)).await;
        consumer
            .answered(&next.iter().map(|delivery| delivery.tag).collect::<Vec<_>>())
            .await;
        heard.extend(next.iter().map(|delivery| delivery.bell.task_id));
    }
    heard
}

/// Hears on for ever. What was rung twice comes twice.
async fn hear_nothing_new(consumer: &mut dyn Bells, rung: &[TaskId]) {
    loop {
        let heard = consumer.next(4).await;
        assert!(
            heard
                .iter()
                .all(|delivery| rung.contains(&delivery.bell.task_id)),
            "nothing new was rung"
        );
        consumer
            .answered(
                &heard
                    .iter()
                    .map(|delivery| delivery.tag)
                    .collect::<Vec<_>>(),
            )
            .await;
    }
}

async fn ring_until_confirmed(ringer: &RabbitBroker, bell: &Bell) {
    within_patience(async {
        while !ringer.ring(std::slice::from_ref(bell)).await[0].is_confirmed() {
            until_up(ringer).await;
        }
    })
    .await;
}

/// Says it again every other second: what is told in passing is lost with a link that breaks.
async fn say_until_heard(say: impl Fn(), heard: impl Future<Output = ()>) {
    let say_again = async {
        let mut rounds = tokio::time::interval(Duration::from_secs(2));
        loop {
            rounds.tick().await;
            say();
        }
    };
    within_patience(async {
        tokio::select! {
            () = heard => {}
            () = say_again => {}
        }
    })
    .await;
}

async fn bus(broker: &Arc<RabbitBroker>) -> RabbitEventBus {
    let bus = RabbitEventBus::new(broker, MemoryEventBus::new(64));
    bus.listen().await;
    bus
}

async fn a_killed_server_keeps_its_word() {
    let mut scene = Scene::set("rabbitmq-killed", LaneKind::Classic).await;
    scene.here.declare(&["another".to_owned()]).await.unwrap();
    let waiting: Vec<_> = (0..300).map(|_| bell("another")).collect();
    assert_eq!(
        scene.here.ring(&waiting).await,
        vec![Published::Confirmed; waiting.len()]
    );
    for _ in 0..2 {
        scene.assert_works().await;
        scene.break_while_waiting(OwnServer::kill).await;
        block_in_place(|| scene.server.start_again());
        scene.until_up().await;
        assert_eq!(
            scene.here.depth("another").await,
            Ok(300),
            "what was confirmed is on the disk"
        );
    }
    scene.assert_works().await;
    assert_eq!(
        within_patience(scene.here.bells("another").next(300)).await[0].bell,
        waiting[0]
    );
}

async fn a_wiped_server_is_set_up_anew() {
    for (name, lanes) in [
        ("rabbitmq-wiped", LaneKind::Classic),
        ("rabbitmq-wiped-quorum", LaneKind::Quorum),
    ] {
        let mut scene = Scene::set(name, lanes).await;
        scene.assert_works().await;
        scene.break_while_waiting(OwnServer::kill).await;
        block_in_place(|| {
            scene.server.wipe();
            scene.server.start_again();
        });
        scene.until_up().await;
        assert_eq!(scene.there.depth(QUEUES[0]).await, Ok(0));
        scene.assert_works().await;
    }
}

async fn a_frozen_server_holds_nobody_up() {
    let mut scene = Scene::set_hastily("rabbitmq-frozen", LaneKind::Classic).await;
    scene.assert_works().await;
    scene
        .break_while_waiting(|server| server.signal("STOP"))
        .await;
    scene.server.signal("CONT");
    scene.until_up().await;
    scene.assert_works().await;
}

/// A cluster whose server with a classic lane is away remembers the lane and answers 404. Without a cluster, its tables
/// are made to say the same.
async fn a_lane_that_is_away() {
    let mut scene = Scene::set("rabbitmq-absent", LaneKind::Classic).await;
    scene.assert_works().await;
    let (_, host) = scene.server.url.rsplit_once('/').unwrap();
    let name = format!(
        "rabbit_misc:r(<<\"{host}\">>, queue, <<\"{}\">>)",
        scene.namespace.full(QUEUES[0])
    );
    let away = format!("mnesia:dirty_delete(rabbit_queue, {name}).");
    let back = format!(
        "[Q] = mnesia:dirty_read(rabbit_durable_queue, {name}), mnesia:dirty_write(rabbit_queue, Q)."
    );
    let both = [Arc::clone(&scene.here), Arc::clone(&scene.there)];
    let down = both.map(|broker| tokio::spawn(async move { until_down(&*broker).await }));
    block_in_place(|| {
        scene.control(&["eval", &away]);
        scene.control(&["close_all_connections", "--global", "gone"]);
    });
    for broken in down {
        broken.await.unwrap();
    }
    scene.until_up().await;
    assert!(scene.here.depth(QUEUES[0]).await.is_err(), "it is away");
    let rung = bell(QUEUES[1]);
    assert_eq!(
        scene.here.ring(std::slice::from_ref(&rung)).await,
        [Published::Confirmed]
    );
    scene.rung.push(rung.task_id);
    let [first, second] = &mut scene.consumers;
    // Somebody who waits for the lane that is away takes nothing from the other either.
    tokio::select! {
        heard = hear_until(&mut **second, rung.task_id) => assert!(heard.iter().all(|id| scene.rung.contains(id))),
        _ = first.next(4) => panic!("nothing can come"),
    }
    block_in_place(|| scene.control(&["eval", &back]));
    scene.assert_works().await;
    assert_eq!(scene.here.state(), BrokerState::Up);
}

async fn a_server_without_memory() {
    let mut scene = Scene::set("rabbitmq-full", LaneKind::Classic).await;
    scene.assert_works().await;
    let waiting = bell(QUEUES[0]);
    assert_eq!(
        scene.here.ring(std::slice::from_ref(&waiting)).await,
        [Published::Confirmed]
    );
    block_in_place(|| scene.control(&["set_vm_memory_high_watermark", "absolute", "1MB"]));
    // Whoever publishes is told at the next try, and nobody waits for long.
    within_patience(async {
        while matches!(scene.here.state(), BrokerState::Up) {
            let answer = scene.here.ring(&[bell(QUEUES[1])]).await;
            assert!(
                matches!(answer[..], [Published::Unknown(_) | Published::Confirmed]),
                "{answer:?}"
            );
        }
    })
    .await;
    let why = until_down(&*scene.here).await;
    assert!(
        why.contains("takes no messages") && why.contains("memory"),
        "{why}"
    );
    let heard = within_patience(scene.consumers[0].next(4)).await;
    assert_eq!(heard[0].bell, waiting, "what it has it hands out");
    scene.consumers[0].answered(&[heard[0].tag]).await;
    assert_eq!(within_patience(scene.here.depth("vip_short")).await, Ok(0));
    block_in_place(|| scene.control(&["set_vm_memory_high_watermark", "absolute", "512MB"]));
    scene.until_up().await;
    // Bells that were written while it was blocked may come after all.
    scene.consumers = [scene.here.bells("a"), scene.there.bells("b")];
    scene
        .here
        .declare(&["a".to_owned(), "b".to_owned()])
        .await
        .unwrap();
    let rung = bell("a");
    assert_eq!(
        scene.there.ring(std::slice::from_ref(&rung)).await,
        [Published::Confirmed]
    );
    assert_eq!(
        within_patience(scene.consumers[0].next(4)).await[0].bell,
        rung
    );
}
