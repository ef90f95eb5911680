//! The queues and exchanges: their names, their settings, and how they are declared.
//!
//! Everything is durable. What exists already stays as it is. What exists with other settings is an
//! error that an operator must resolve.

use lapin::{
    Channel, ErrorKind, ExchangeKind,
    options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions},
    protocol::{AMQPErrorKind, AMQPSoftError},
    types::{AMQPValue, FieldTable, ShortString},
};
use longhaul_domain::contract::broker::BrokerError;

use super::options::{QueueKind, RabbitOptions};
use crate::names;

/// The delays of the delay queues: each is twice the one before. The last is above half an hour, so
/// an hour takes two.
const FIRST_DELAY_MS: u64 = 250;
const DELAY_STEPS: u32 = 14;
/// The most dead letters; the oldest are dropped. Their tasks are in the store all the same.
const DEAD_LETTERS: i32 = 100_000;
/// The most reports of progress that wait for a collector. A newer report replaces an older one
/// anyway.
const REPORTS: i32 = 100_000;
/// How often a quorum queue delivers a hint before it moves it to the dead letters. A pause returns
/// hints to the queue, so the number is not small.
const DELIVERY_LIMIT: i32 = 1_000;

/// The names of one namespace.
#[derive(Debug, Clone)]
pub(super) struct Names {
    prefix: String,
}

impl Names {
    pub(super) fn new(options: &RabbitOptions) -> Self {
        let prefix = match options.namespace.as_str() {
            "" => String::new(),
            namespace => format!("{namespace}."),
        };
        Self { prefix }
    }

    pub(super) fn full(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}

/// The routing key of a hint. A dot in the name of a queue would be a level of the key, and one
/// queue would receive another's hints.
pub(super) fn routing_key(queue: &str, task_type: &str) -> String {
    format!("{}.{task_type}", queue.replace('.', "~"))
}

/// The longest step that fits into a delay; `None` for a delay that is too short for one.
pub(super) fn delay_step_ms(delay_ms: u64) -> Option<u64> {
    delay_steps_ms().take_while(|step| *step <= delay_ms).last()
}

fn delay_steps_ms() -> impl Iterator<Item = u64> {
    (0..DELAY_STEPS).map(|step| FIRST_DELAY_MS << step)
}

fn delay_queue(step_ms: u64) -> String {
    format!("tasks.wait.{step_ms}")
}

/// The routing key of a delay queue. A hint still has it when it leaves the delay queue, and no
/// hint queue may match it then: no task queue has an `@` in its name.
pub(super) fn delay_key(step_ms: u64) -> String {
    format!("@wait.{step_ms}")
}

/// Refuses a task queue whose hint queue would have the name of another queue of Longhaul.
pub(super) fn check_queue_name(queue: &str) -> Result<(), String> {
    let name = names::hint_queue(queue);
    let reserved = [
        names::DEAD_LETTER_QUEUE,
        names::PROGRESS_QUEUE,
        "tasks.results",
    ];
    let is_taken = reserved.contains(&name.as_str())
        || delay_steps_ms().any(|step_ms| delay_queue(step_ms) == name);

    if is_taken {
        return Err(format!(
            "the queue {queue} cannot have hints: {name} is reserved for other messages. \
             Rename the queue"
        ));
    }

    Ok(())
}

/// Why a queue, an exchange or a binding could not be declared.
#[derive(Debug)]
pub(super) enum DeclareError {
    /// An operator must resolve it.
    Differs(String),
    /// The server of the cluster that has it is down. The others answer, and everything else can be
    /// used.
    Absent(String),
    /// The server did not answer.
    Unavailable(String),
}

impl From<DeclareError> for BrokerError {
    fn from(error: DeclareError) -> Self {
        match error {
            DeclareError::Differs(why) => Self::Topology(why),
            DeclareError::Absent(why) | DeclareError::Unavailable(why) => Self::Unavailable(why),
        }
    }
}

/// Declares everything that does not belong to one task queue. All queues have the kind of the hint
/// queues, so that none of them is lost when one server of a cluster is down.
pub(super) async fn declare_base(
    channel: &Channel,
    names: &Names,
    kind: QueueKind,
) -> Result<(), DeclareError> {
    declare_exchanges(channel, names).await?;

    let dead_letters = names::DEAD_LETTER_QUEUE;
    let max_length = vec![("x-max-length", number(DEAD_LETTERS))];
    declare_queue(channel, names, kind, dead_letters, max_length).await?;
    bind(
        channel,
        names,
        dead_letters,
        names::DEAD_LETTER_EXCHANGE,
        "#",
    )
    .await?;

    let max_length = vec![("x-max-length", number(REPORTS))];
    declare_queue(channel, names, kind, names::PROGRESS_QUEUE, max_length).await?;

    declare_delay_queues(channel, names, kind).await
}

async fn declare_exchanges(channel: &Channel, names: &Names) -> Result<(), DeclareError> {
    let exchanges = [
        (names::EXCHANGE, ExchangeKind::Topic),
        (names::RETRY_EXCHANGE, ExchangeKind::Direct),
        (names::REQUEUE_EXCHANGE, ExchangeKind::Topic),
        (names::DEAD_LETTER_EXCHANGE, ExchangeKind::Topic),
        (names::EVENTS_EXCHANGE, ExchangeKind::Topic),
        (names::CONTROL_EXCHANGE, ExchangeKind::Fanout),
        (names::FANOUT_EXCHANGE, ExchangeKind::Fanout),
    ];

    for (name, kind) in exchanges {
        let name = names.full(name);
        let options = ExchangeDeclareOptions {
            durable: true,
            ..ExchangeDeclareOptions::default()
        };
        channel
            .exchange_declare(short(&name), kind, options, FieldTable::default())
            .await
            .map_err(|error| declare_error("exchange", &name, &error))?;
    }

    Ok(())
}

/// Declares the queues in which hints wait. A hint expires there and goes to the requeue exchange.
async fn declare_delay_queues(
    channel: &Channel,
    names: &Names,
    kind: QueueKind,
) -> Result<(), DeclareError> {
    let requeue = AMQPValue::LongString(names.full(names::REQUEUE_EXCHANGE).into());
    for step_ms in delay_steps_ms() {
        let ttl = number(i32::try_from(step_ms).unwrap_or(i32::MAX));
        let arguments = vec![
            ("x-message-ttl", ttl),
            ("x-dead-letter-exchange", requeue.clone()),
        ];

        let queue = delay_queue(step_ms);
        declare_queue(channel, names, kind, &queue, arguments).await?;
        let key = delay_key(step_ms);
        bind(channel, names, &queue, names::RETRY_EXCHANGE, &key).await?;
    }

    Ok(())
}

/// Declares the hint queue of one task queue.
pub(super) async fn declare_hint_queue(
    channel: &Channel,
    names: &Names,
    kind: QueueKind,
    queue: &str,
) -> Result<(), DeclareError> {
    check_queue_name(queue).map_err(DeclareError::Differs)?;
    let dead_letters = (
        "x-dead-letter-exchange",
        AMQPValue::LongString(names.full(names::DEAD_LETTER_EXCHANGE).into()),
    );
    let arguments = match kind {
        QueueKind::Classic => vec![dead_letters, ("x-max-priority", number(9))],
        QueueKind::Quorum => vec![dead_letters, ("x-delivery-limit", number(DELIVERY_LIMIT))],
    };

    let name = names::hint_queue(queue);
    declare_queue(channel, names, kind, &name, arguments).await?;
    let key = routing_key(queue, "#");
    bind(channel, names, &name, names::EXCHANGE, &key).await?;

    bind(channel, names, &name, names::REQUEUE_EXCHANGE, &key).await
}

async fn declare_queue(
    channel: &Channel,
    names: &Names,
    kind: QueueKind,
    name: &str,
    mut arguments: Vec<(&str, AMQPValue)>,
) -> Result<(), DeclareError> {
    match kind {
        QueueKind::Classic => {}
        QueueKind::Quorum => {
            arguments.push(("x-queue-type", AMQPValue::LongString("quorum".into())));
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

    match declared {
        Ok(_) => Ok(()),
        Err(error) => Err(declare_error("queue", &name, &error)),
    }
}

async fn bind(
    channel: &Channel,
    names: &Names,
    queue: &str,
    exchange: &str,
    key: &str,
) -> Result<(), DeclareError> {
    let queue = names.full(queue);
    let exchange = names.full(exchange);
    let bound = channel
        .queue_bind(
            short(&queue),
            short(&exchange),
            short(key),
            QueueBindOptions::default(),
            FieldTable::default(),
        )
        .await;

    bound.map_err(|error| declare_error("binding of", &queue, &error))
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

/// Text as an AMQP short string, cut to its 255 bytes. All names here are far shorter.
pub(super) fn short(text: &str) -> ShortString {
    ShortString::try_new(&text[..text.floor_char_boundary(255)]).unwrap_or_default()
}

/// The error of a declaration, with a text for the operator.
fn declare_error(kind: &str, name: &str, error: &lapin::Error) -> DeclareError {
    let reason = reason_of(error);
    if is_soft(error, &AMQPSoftError::PRECONDITIONFAILED) {
        return DeclareError::Differs(format!(
            "the {kind} {name} exists with other settings ({reason}). Delete it, and it is \
             declared again (no task is lost with it), or set broker.lanes or broker.namespace to \
             match"
        ));
    }

    if is_soft(error, &AMQPSoftError::ACCESSREFUSED) {
        return DeclareError::Differs(format!(
            "declaring the {kind} {name} is forbidden ({reason}). Give the user the rights to \
             configure, write and read it"
        ));
    }

    let why = format!("the {kind} {name} could not be declared: {reason}");
    if is_soft(error, &AMQPSoftError::NOTFOUND) {
        DeclareError::Absent(why)
    } else {
        DeclareError::Unavailable(why)
    }
}

pub(super) fn is_soft(error: &lapin::Error, kind: &AMQPSoftError) -> bool {
    let ErrorKind::ProtocolError(error) = error.kind() else {
        return false;
    };
    matches!(error.kind(), AMQPErrorKind::Soft(soft) if soft == kind)
}

/// The server's message, if it sent one.
pub(super) fn reason_of(error: &lapin::Error) -> String {
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
    fn a_delay_takes_the_longest_step_that_fits() {
        let cases = [
            (0, None),
            (249, None),
            (250, Some(250)),
            (999, Some(500)),
            (1_000, Some(1_000)),
        ];
        for (delay_ms, step) in cases {
            assert_eq!(delay_step_ms(delay_ms), step, "{delay_ms}");
        }

        assert_eq!(delay_step_ms(3_600_000), Some(2_048_000));
        assert_eq!(delay_step_ms(u64::MAX), Some(2_048_000));
    }

    #[test]
    fn a_task_queue_cannot_have_the_name_of_another_queue() {
        assert!(check_queue_name("free_default").is_ok());
        assert!(check_queue_name("wait.300").is_ok());
        for queue in ["dlq", "progress", "results", "wait.250", "wait.2048000"] {
            let refusal = check_queue_name(queue).unwrap_err();
            assert!(refusal.contains("Rename"), "{queue}");
        }
    }

    #[test]
    fn no_hint_queue_matches_the_key_of_a_delay_queue() {
        for step_ms in delay_steps_ms() {
            let key = delay_key(step_ms);
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
