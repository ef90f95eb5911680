//! All tests with a RabbitMQ server: the suites, and the failures that only RabbitMQ has.

mod bare;
pub(crate) mod breaking;
mod fresh;
mod remote_events;
mod stalled;
mod wire;

use std::sync::Arc;

use libtest_mimic::Trial;
use longhaul_domain::contract::{Broker, EventBus};
use longhaul_testkit::{
    broker_suite::{self, BrokerFactory, Lanes},
    clock::TestClock,
    event_bus_suite::{self, EventBusFactory},
    suite::Fresh,
};
use longhaul_transport::{
    local::MemoryEventBus,
    rabbitmq::{QueueKind, RabbitEventBus},
};

use fresh::Namespace;

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials =
        broker_suite::trials("rabbitmq", Lanes::ByPriority, &broker(QueueKind::Classic));
    trials.extend(broker_suite::trials(
        "rabbitmq_quorum",
        Lanes::InOrder,
        &broker(QueueKind::Quorum),
    ));
    trials.extend(event_bus_suite::trials("rabbitmq", &event_bus()));
    trials.extend(remote_events::trials());
    trials.extend(wire::trials());
    trials.extend(stalled::trials());

    trials
}

fn broker(kind: QueueKind) -> BrokerFactory {
    Arc::new(move |()| {
        Box::pin(async move {
            let namespace = Namespace::new();
            let broker = namespace.broker(kind).await;
            Fresh::new(
                broker as Arc<dyn Broker>,
                TestClock::new(),
                Some(Box::new(namespace)),
            )
        })
    })
}

fn event_bus() -> EventBusFactory {
    Arc::new(move |capacity| {
        Box::pin(async move {
            let namespace = Namespace::new();
            let broker = namespace.broker(QueueKind::Classic).await;
            let bus = RabbitEventBus::new(&broker, MemoryEventBus::new(capacity));
            bus.listen().await;
            let keep = Some(Box::new((namespace, broker)) as _);
            Fresh::new(Arc::new(bus) as Arc<dyn EventBus>, TestClock::new(), keep)
        })
    })
}
