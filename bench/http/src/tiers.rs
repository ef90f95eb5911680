//! Fairness behind a flood of free tasks: how soon an enterprise task starts, and the only task of
//! another owner in the same queue.

use std::time::Duration;

use longhaul::{Builder, Context, Handle, Longhaul, Outcome, RabbitOptions, Task, WorkerSettings};

use crate::{
    database::{self, Backend},
    report::{Report, Wanted, percentile},
};

const FLOOD: usize = 10_000;
const SLOTS: usize = 16;
/// The duration of a task.
const BUSY: Duration = Duration::from_millis(100);
/// The number of measured tasks, and the pause between them.
const LOOKED_AT: usize = 100;
const APART: Duration = Duration::from_millis(50);

#[derive(Debug)]
struct Busy;

impl Task for Busy {
    const TYPE: &'static str = "busy";
    type Params = ();
    type Output = ();

    async fn run(&self, _: Context<Self>) -> Outcome<()> {
        tokio::time::sleep(BUSY).await;
        Ok(())
    }
}

/// On the database alone, and on PostgreSQL also with RabbitMQ.
pub(crate) async fn measure(backend: Backend, report: &mut Report) -> anyhow::Result<()> {
    measure_on(backend.name(), backend, None, report).await?;
    if matches!(backend, Backend::Postgres) {
        let broker = database::server("LONGHAUL_TEST_RABBITMQ")?;
        measure_on("postgres and RabbitMQ", backend, Some(&broker), report).await?;
    }
    Ok(())
}

async fn measure_on(
    name: &str,
    backend: Backend,
    broker: Option<&str>,
    report: &mut Report,
) -> anyhow::Result<()> {
    let database = backend.fresh().await?;
    let open = async || -> anyhow::Result<Builder> {
        let builder = Longhaul::open(&database.url).await?.register(Busy);
        let options = RabbitOptions {
            namespace: "longhaul_bench_tiers".to_owned(),
            ..RabbitOptions::default()
        };

        Ok(match broker {
            Some(url) => builder.rabbitmq(url, options),
            None => builder,
        })
    };

    let worker = WorkerSettings {
        slots: SLOTS,
        ..WorkerSettings::default()
    };
    let worker = open().await?.worker(worker).start().await?;

    for _ in 0..FLOOD / 1_000 {
        worker
            .submit_all((0..1_000).map(|_| worker.submit::<Busy>(()).owner("heavy")))
            .await?;
    }

    let mut enterprise = Vec::new();
    for number in 0..LOOKED_AT {
        enterprise.push(
            worker
                .submit::<Busy>(())
                .owner(&format!("rich-{}", number % 5))
                .tier("enterprise")
                .await?,
        );

        tokio::time::sleep(APART).await;
    }

    let mut light = Vec::new();
    for number in 0..LOOKED_AT {
        light.push(
            worker
                .submit::<Busy>(())
                .owner(&format!("light-{number}"))
                .await?,
        );
        tokio::time::sleep(APART).await;
    }

    let waited = percentile(&mut waits(&enterprise).await?, 99.0);
    let what = format!("enterprise task behind {FLOOD} free ones, submit to start, p99 in s");
    report.add(
        name,
        &what,
        waited,
        &format!("{waited:.3}"),
        Wanted::AtMost(1.0),
    );

    let waited = percentile(&mut waits(&light).await?, 99.0);
    let what = format!(
        "one task of another owner behind {FLOOD} in the same queue, \
         submit to start, p99 in s"
    );
    report.add(
        name,
        &what,
        waited,
        &format!("{waited:.3}"),
        Wanted::AtMost(2.0),
    );

    worker.stop().await;
    Ok(())
}

/// How long each task waited, in seconds by the store's clock.
async fn waits(handles: &[Handle<Busy>]) -> anyhow::Result<Vec<f64>> {
    let mut waits = Vec::with_capacity(handles.len());
    for handle in handles {
        handle.result().await?;
        let task = handle.task().await?;
        let started = task.started_at.unwrap_or(task.updated_at);
        waits.push(started.micros_since(task.created_at) as f64 / 1e6);
    }

    Ok(waits)
}
