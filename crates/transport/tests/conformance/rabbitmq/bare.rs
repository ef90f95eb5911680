//! A plain RabbitMQ client, as another program would use.

use futures::StreamExt;
use lapin::{
    BasicProperties, Channel, Connection, Consumer,
    message::Delivery,
    options::{BasicConsumeOptions, BasicPublishOptions, QueueBindOptions, QueueDeclareOptions},
    types::FieldTable,
};

use super::fresh::Namespace;

pub(crate) struct Bare {
    pub(crate) channel: Channel,
    connection: Connection,
}

impl Bare {
    pub(crate) async fn connect(namespace: &Namespace) -> Self {
        let connection = namespace.connection().await;
        Self {
            channel: connection.create_channel().await.unwrap(),
            connection,
        }
    }

    /// Consumes an existing queue.
    pub(crate) async fn consume(&self, queue: &str) -> Consumer {
        let options = BasicConsumeOptions {
            no_ack: true,
            ..BasicConsumeOptions::default()
        };
        self.channel
            .basic_consume(queue.into(), "".into(), options, FieldTable::default())
            .await
            .unwrap()
    }

    /// Consumes what an exchange routes to a key, from now on.
    pub(crate) async fn subscribe(&self, exchange: &str, key: &str) -> Consumer {
        let options = QueueDeclareOptions {
            exclusive: true,
            ..QueueDeclareOptions::default()
        };
        let queue = self
            .channel
            .queue_declare("".into(), options, FieldTable::default())
            .await
            .unwrap();

        let name = queue.name().clone();
        let options = QueueBindOptions::default();
        let bound = self.channel.queue_bind(
            name.clone(),
            exchange.into(),
            key.into(),
            options,
            FieldTable::default(),
        );

        bound.await.unwrap();
        self.consume(name.as_str()).await
    }

    /// Waits until a queue has a consumer. The queue may not exist yet.
    pub(crate) async fn until_consumed(&self, queue: &str) {
        loop {
            let channel = self.connection.create_channel().await.unwrap();
            let options = QueueDeclareOptions {
                passive: true,
                ..QueueDeclareOptions::default()
            };
            let declared = channel
                .queue_declare(queue.into(), options, FieldTable::default())
                .await;
            if declared.is_ok_and(|queue| queue.consumer_count() > 0) {
                return;
            }

            tokio::task::yield_now().await;
        }
    }

    pub(crate) async fn publish(&self, exchange: &str, key: &str, body: &[u8]) {
        let options = BasicPublishOptions::default();
        let properties = BasicProperties::default();
        let sent = self
            .channel
            .basic_publish(exchange.into(), key.into(), options, body, properties)
            .await;
        sent.unwrap().await.unwrap();
    }
}

pub(crate) async fn next(consumer: &mut Consumer) -> Delivery {
    let delivery = tokio::time::timeout(std::time::Duration::from_secs(60), consumer.next()).await;
    delivery.unwrap().unwrap().unwrap()
}

pub(crate) fn header(delivery: &Delivery, name: &str) -> Option<String> {
    let headers = delivery.properties.headers().as_ref()?;
    let value = headers.inner().get(name)?;
    let text = value.as_long_string().map(ToString::to_string);
    text.or_else(|| value.as_long_long_int().map(|number| number.to_string()))
}
