//! How soon a client receives the progress that a handler reports.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use longhaul::{Context, Longhaul, Outcome, Progress, Task};
use serde_json::{Value, json};

use crate::{
    client::Client,
    database::Backend,
    report::{Report, Wanted, percentile},
    served::Served,
};

const STEPS: usize = 200;
const BETWEEN: Duration = Duration::from_millis(25);

/// When each step was reported.
/// When each step was reported. Locked for one push or look.
type Reported = Arc<Mutex<Vec<Instant>>>;

#[derive(Debug)]
struct Stepping(Reported);

impl Task for Stepping {
    const TYPE: &'static str = "stepping";
    type Params = ();
    type Output = ();

    async fn run(&self, ctx: Context<Self>) -> Outcome<()> {
        for step in 0..STEPS {
            ctx.sleep(BETWEEN).await?;
            self.0
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(Instant::now());
            ctx.progress(Progress::percent(0.0).message(step.to_string()))
                .await?;
        }

        Ok(())
    }
}

pub(crate) async fn measure(backend: Backend, report: &mut Report) -> anyhow::Result<()> {
    let database = backend.fresh().await?;
    let reported = Reported::default();
    let longhaul = Longhaul::open(&database.url)
        .await?
        .register(Stepping(Arc::clone(&reported)))
        .start()
        .await?;
    let served = Served::start(longhaul).await?;
    let mut client = Client::connect(served.address).await?;

    let body = json!({"taskType": "stepping", "parameters": null}).to_string();
    let answer: Value = serde_json::from_str(&client.submit(&body).await?)?;
    let id = answer["taskId"].as_str().unwrap_or_default();

    client.follow(&format!("/api/tasks/{id}/events")).await?;

    let mut took = Vec::new();
    loop {
        let line = client.line().await?;
        let seen = Instant::now();
        let Some(data) = line.strip_prefix("data:") else {
            continue;
        };
        let event: Value = serde_json::from_str(data)?;
        if event["event"] == "completed" {
            break;
        }

        let text = event["progress"]["message"].as_str().unwrap_or_default();
        let Ok(step) = text.parse::<usize>() else {
            continue;
        };

        let reported = reported.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = reported.get(step)
            && event["event"] == "progress"
        {
            took.push(seen.duration_since(*at).as_secs_f64() * 1_000.0);
        }
    }

    let median = percentile(&mut took, 50.0);
    let late = percentile(&mut took, 99.0);
    let shown = format!(
        "{late:.1} (median {median:.1}, {} of {STEPS} reports seen)",
        took.len()
    );

    report.add(
        backend.name(),
        "progress from report to SSE client, p99 in ms",
        late,
        &shown,
        Wanted::AtMost(100.0),
    );

    served.stop().await
}
