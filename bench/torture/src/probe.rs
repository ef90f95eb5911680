//! Requests in each server's own protocol, without any code of Longhaul.

use anyhow::{Context as _, bail, ensure};
use lapin::{Connection, ConnectionProperties, options::QueuePurgeOptions};
use sqlx::{Connection as _, Executor as _};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::server::Service;

/// The task queue of the run, and the delay queues of its retries.
const QUEUES: [&str; 4] = [
    "tasks.free_default",
    "tasks.wait.250",
    "tasks.wait.500",
    "tasks.wait.1000",
];

/// Fails unless the server answers.
pub(crate) async fn ping(service: Service, url: &str) -> anyhow::Result<()> {
    match service {
        Service::Postgres | Service::Mariadb => execute(service, url, "SELECT 1").await,
        Service::Rabbitmq => {
            let connection = Connection::connect(url, ConnectionProperties::default()).await?;
            Ok(connection.close(200, "seen".into()).await?)
        }
        Service::Redis => redis(url, "PING", "+PONG").await,
    }
}

/// Deletes waiting hints, or everything in Redis.
pub(crate) async fn empty(service: Service, url: &str) -> anyhow::Result<()> {
    match service {
        Service::Postgres | Service::Mariadb => bail!("the database must not be emptied"),
        Service::Rabbitmq => {
            let connection = Connection::connect(url, ConnectionProperties::default()).await?;
            for queue in QUEUES {
                // A missing queue closes the channel, so each queue has its own.
                let channel = connection.create_channel().await?;
                let _ = channel
                    .queue_purge(queue.into(), QueuePurgeOptions::default())
                    .await;
            }

            // This fails if the server has closed a channel.
            let _ = connection.close(200, "emptied".into()).await;
            Ok(())
        }
        Service::Redis => redis(url, "FLUSHALL", "+OK").await,
    }
}

/// Executes a statement on a new connection.
pub(crate) async fn execute(service: Service, url: &str, statement: &str) -> anyhow::Result<()> {
    let sql = sqlx::AssertSqlSafe(statement.to_owned());
    match service {
        Service::Postgres => sqlx::PgConnection::connect(url)
            .await?
            .execute(sql)
            .await
            .map(|_| ())?,
        Service::Mariadb => sqlx::MySqlConnection::connect(url)
            .await?
            .execute(sql)
            .await
            .map(|_| ())?,
        Service::Rabbitmq | Service::Redis => bail!("{} has no SQL", service.name()),
    }

    Ok(())
}

async fn redis(url: &str, command: &str, wanted: &str) -> anyhow::Result<()> {
    let rest = url
        .strip_prefix("redis://:")
        .context("redis://:password@address/")?;
    let (password, address) = rest.split_once('@').context("redis://:password@address/")?;
    let mut stream = BufReader::new(TcpStream::connect(address.trim_end_matches('/')).await?);

    for (line, wanted) in [
        (format!("AUTH {password}\r\n"), "+OK"),
        (format!("{command}\r\n"), wanted),
    ] {
        stream.write_all(line.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_line(&mut answer).await?;
        ensure!(answer.trim_end() == wanted, "Redis answers {answer:?}");
    }

    Ok(())
}
