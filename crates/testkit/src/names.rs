//! Names in tests, which are valid.

use longhaul_domain::QueueName;

pub fn queue_name(name: &str) -> QueueName {
    QueueName::parse(name).expect("the name of a queue")
}
