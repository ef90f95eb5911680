//! The queues and exchanges: what they are called, what they are, and how they are made.
//!
//! Everything is durable. What is there already stays as it is; what is there otherwise is an error for people.

use lapin::{
    Channel, ErrorKind, ExchangeKind,
    options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions},
    protocol::{AMQPErrorKind, AMQPSoftError},
    types::{AMQPValue, FieldTable, ShortString},
};
use longhaul_domain::contract::broker::BrokerError;

use super::options::{LaneKind, RabbitOptions};
use crate::names;

/// The ladder: a rung waits twice as long as the one below it. The last one is above half an hour, so an hour is two.
const FIRST_RUNG_MS: u64 = 250;
const RUNGS: u32 = 14;
/// Dead letters that are kept: the oldest go first. The tasks are in the store all the same.
const DEAD_LETTERS: i32 = 100_000;
/// Reports of progress that wait for whoever keeps them; newer ones replace older ones anyway.
const REPORTS: i32 = 100_000;
/// How often a quorum queue hands out one bell before it sets it aside. A pause gives bells back, so this is no small
/// number.
const DELIVERY_LIMIT: i32 = 1_000;

/// The names of one namespace.
#[derive(Debug, Clone)]
pub(super) struct Names {
    prefix: String,
}

impl Names {
    pub(super) fn new(options: &RabbitOptions) -> Self {
        let prefix = if options.namespace.is_empty() {
            String::new()
        } else {
            format!("{}.", options.namespace)
        };
        Self { prefix }
    }

    pub(super) fn full(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}

/// The key of a bell. Dots of the queue's own would be levels of the key and let one lane hear another's bells.
pub(super) fn routing_key(queue: &str, task_type: &str) -> String {
    format!("{}.{task_type}", queue.replace('.', "~"))
}

/// The longest rung that fits into a delay; `None` for delays that are hardly worth one.
pub(super) fn rung_ms(delay_ms: u64) -> Option<u64> {
    rungs_ms().take_while(|rung| *rung <= delay_ms).last()
}

fn rungs_ms() -> impl Iterator<Item = u64> {
    (0..RUNGS).map(|step| FIRST_RUNG_MS << step)
}

fn wait_queue(rung_ms: u64) -> String {
    format!("tasks.wait.{rung_ms}")
}

/// The key of a rung. A bell keeps it when the rung lets it go, and no lane may hear it then: no queue of tasks has an @.
pub(super) fn rung_key(rung_ms: u64) -> String {
    format!("@wait.{rung_ms}")
}

/// A queue of tasks whose lane would be one of our own queues has none.
pub(super) fn check_lane(queue: &str) -> Result<(), String> {
    let lane = names::lane(queue);
    let ours = [
        names::DEAD_LETTER_QUEUE,
        names::PROGRESS_QUEUE,
        "tasks.results",
    ]
    .map(str::to_owned);
    if ours
        .into_iter()
        .chain(rungs_ms().map(wait_queue))
        .any(|name| name == lane)
    {
        return Err(format!(
            "the queue {queue} cannot have bells: {lane} is kept for other messages. Rename the queue"
        ));
    }
    Ok(())
}

/// Why an element could not be made.
#[derive(Debug)]
pub(super) enum Failure {
    /// It is for people to mend.
    Differs(String),
    /// The server of a cluster that has it is away; the others answer, and everything else can be used.
    Absent(String),
    /// The server did not answer.
    Unavailable(String),
}

impl From<Failure> for BrokerError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Differs(why) => Self::Topology(why),
            Failure::Absent(why) | Failure::Unavailable(why) => Self::Unavailable(why),
        }
    }
}

/// Makes everything that does not belong to one queue of tasks. Its queues are of the kind of the lanes: where one server
/// of a cluster may be away, none of them goes with it.
pub(super) async fn declare_base(
    channel: &Channel,
    names: &Names,
    kind: LaneKind,
) -> Result<(), Failure> {
    let exchanges = [
        (names::EXCHANGE, ExchangeKind::Topic),
        (names::RETRY_EXCHANGE, ExchangeKind::Direct),
        (names::REQUEUE_EXCHANGE, ExchangeKind::Topic),
        (names::DEAD_LETTER_EXCHANGE, ExchangeKind::Topic),
        (names::EVENTS_EXCHANGE, ExchangeKind::Topic),
        (names::CONTROL_EXCHANGE, ExchangeKind::Fanout),
        (names::NEWS_EXCHANGE, ExchangeKind::Fanout),
    ];
    for (name, kind) in exchanges {
        let options = ExchangeDeclareOptions {
            durable: true,
            ..ExchangeDeclareOptions::default()
        };
        let declared = channel
            .exchange_declare(
                short(&names.full(name)),
                kind,
                options,
                FieldTable::default(),
            )
            .await;
        declared.map_err(|error| failed("exchange", &names.full(name), &error))?;
    }
    queue(
        channel,
        names,
        kind,
        names::DEAD_LETTER_QUEUE,
        vec![("x-max-length", number(DEAD_LETTERS))],
    )
    .await?;
    bind(
        channel,
        names,
        names::DEAD_LETTER_QUEUE,
        names::DEAD_LETTER_EXCHANGE,
        "#",
    )
    .await?;
    queue(
        channel,
        names,
        kind,
        names::PROGRESS_QUEUE,
        vec![("x-max-length", number(REPORTS))],
    )
    .await?;
    let requeue = AMQPValue::LongString(names.full(names::REQUEUE_EXCHANGE).into());
    for rung_ms in rungs_ms() {
        let ttl = number(i32::try_from(rung_ms).unwrap_or(i32::MAX));
        let arguments = vec![
            ("x-message-ttl", ttl),
            ("x-dead-letter-exchange", requeue.clone()),
        ];
        queue(channel, names, kind, &wait_queue(rung_ms), arguments).await?;
        bind(
            channel,
            names,
            &wait_queue(rung_ms),
            names::RETRY_EXCHANGE,
            &rung_key(rung_ms),
        )
        .await?;
    }
    Ok(())
}

/// Makes the lane of one queue of tasks.
pub(super) async fn declare_lane(
    channel: &Channel,
    names: &Names,
    kind: LaneKind,
    queue_name: &str,
) -> Result<(), Failure> {
    check_lane(queue_name).map_err(Failure::Differs)?;
    let dead_letters = (
        "x-dead-letter-exchange",
        AMQPValue::LongString(names.full(names::DEAD_LETTER_EXCHANGE).into()),
    );
    let arguments = match kind {
        LaneKind::Classic => vec![dead_letters, ("x-max-priority", number(9))],
        LaneKind::Quorum => vec![dead_letters, ("x-delivery-limit", number(DELIVERY_LIMIT))],
    };
    let lane = names::lane(queue_name);
    queue(channel, names, kind, &lane, arguments).await?;
    let key = routing_key(queue_name, "#");
    bind(channel, names, &lane, names::EXCHANGE, &key).await?;
    bind(channel, names, &lane, names::REQUEUE_EXCHANGE, &key).await
}

async fn queue(
    channel: &Channel,
    names: &Names,
    kind: LaneKind,
    name: &str,
    mut arguments: Vec<(&str, AMQPValue)>,
) -> Result<(), Failure> {
    match kind {
        LaneKind::Classic => {}
        LaneKind::Quorum => {
            arguments.push(("x-queue-type", AMQPValue::LongString("quorum".into())))
        }
    }
    let name = names.full(name);
    let options = QueueDeclareOptions {
        durable: true,
        ..QueueDeclareOptions::default()
    };
    let declared = channel
        .queue_declare(short(&name), options, table(&arguments))
        .await;
    declared
        .map(drop)
        .map_err(|error| failed("queue", &name, &error))
}

async fn bind(
    channel: &Channel,
    names: &Names,
    queue: &str,
    exchange: &str,
    key: &str,
) -> Result<(), Failure> {
    let (queue, exchange) = (names.full(queue), names.full(exchange));
    let bound = channel
        .queue_bind(
            short(&queue),
            short(&exchange),
            short(key),
            QueueBindOptions::default(),
            FieldTable::default(),
        )
        .await;
    bound.map_err(|error| failed("binding of", &queue, &error))
}

pub(super) fn table(arguments: &[(&str, AMQPValue)]) -> FieldTable {
    let mut table = FieldTable::default();
    for (key, value) in arguments {
        table.insert(short(key), value.clone());
    }
    table
}

pub(super) const fn number(value: i32) -> AMQPValue {
    AMQPValue::LongInt(value)
}

/// Text for AMQP's short strings, cut where they end. Everything that gets here is bounded far below.
pub(super) fn short(text: &str) -> ShortString {
    ShortString::try_new(&text[..text.floor_char_boundary(255)]).unwrap_or_default()
}

/// What the server says about an element that cannot be made, as a sentence for people.
fn failed(kind: &str, name: &str, error: &lapin::Error) -> Failure {
    if is_soft(error, &AMQPSoftError::PRECONDITIONFAILED) {
        return Failure::Differs(format!(
            "the {kind} {name} is there with other settings than ours ({}). Delete it and it is made anew (no task is \
             lost with it), or set broker.lanes or broker.namespace to what fits",
            said(error)
        ));
    }
    if is_soft(error, &AMQPSoftError::ACCESSREFUSED) {
        return Failure::Differs(format!(
            "we may not make the {kind} {name} ({}). Give the user the rights to configure, write and read it",
            said(error)
        ));
    }
    let why = format!("the {kind} {name} could not be made: {}", said(error));
    if is_soft(error, &AMQPSoftError::NOTFOUND) {
        Failure::Absent(why)
    } else {
        Failure::Unavailable(why)
    }
}

pub(super) fn is_soft(error: &lapin::Error, kind: &AMQPSoftError) -> bool {
    matches!(error.kind(), ErrorKind::ProtocolError(error) if matches!(error.kind(), AMQPErrorKind::Soft(soft) if soft == kind))
}

/// The server's own words, where it has said something.
pub(super) fn said(error: &lapin::Error) -> String {
    if let ErrorKind::ProtocolError(error) = error.kind() {
        return error.get_message().to_string();
    }
    error.to_string()
}

#[cfg(test)]
mod tests {
    use longhaul_domain::bounds;

    use super::*;

    #[test]
    fn a_delay_takes_the_longest_rung_that_fits() {
        let cases = [
            (0, None),
            (249, None),
            (250, Some(250)),
            (999, Some(500)),
            (1_000, Some(1_000)),
        ];
        for (delay_ms, rung) in cases {
            assert_eq!(rung_ms(delay_ms), rung, "{delay_ms}");
        }
        assert_eq!(rung_ms(3_600_000), Some(2_048_000));
        assert_eq!(rung_ms(u64::MAX), Some(2_048_000));
    }

    #[test]
    fn a_queue_of_tasks_cannot_be_one_of_ours() {
        assert!(check_lane("free_default").is_ok());
        assert!(check_lane("wait.300").is_ok());
        for queue in ["dlq", "progress", "results", "wait.250", "wait.2048000"] {
            assert!(check_lane(queue).unwrap_err().contains("Rename"), "{queue}");
        }
    }

    #[test]
    fn no_lane_hears_the_key_of_a_rung() {
        for rung in rungs_ms() {
            let key = rung_key(rung);
            let first_level = key.split('.').next().unwrap();
            assert!(
                bounds::check_label("queue", first_level).is_err() && !first_level.contains('~'),
                "{key}"
            );
        }
    }

    #[test]
    fn text_is_cut_between_characters() {
        assert_eq!(short(&"ž".repeat(200)).as_str(), "ž".repeat(127));
    }
}
