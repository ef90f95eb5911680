//! `longhaul submit`: submits a task.

use std::io::Read as _;

use anyhow::Context as _;
use longhaul_api::{Moment, SubmitRequest, WireDuration};
use serde_json::value::RawValue;

use super::watch;
use crate::client::{EXIT_CODES, Exit, ServerOptions};

/// Bytes of parameters to read from a file or a pipe: servers accept no more.
const PARAMETER_BYTES: u64 = 1024 * 1024;

/// Options of `longhaul submit`.
#[derive(Debug, clap::Args)]
#[command(after_help = format!(
    "Examples:\n  longhaul submit sample.echo '{{\"hello\":\"world\"}}'\n  \
     longhaul submit sample.progress '{{\"steps\":50,\"stepMs\":200}}' --watch\n  \
     longhaul submit my.report @parameters.json --priority 7 --key report-2026-03\n  \
     jq -n '{{ms:500}}' | longhaul submit sample.sleep - --delay 1h\n\n{EXIT_CODES}"
))]
pub struct Submit {
    /// The name of a registered type. The error for an unknown one lists the known ones.
    task_type: String,
    /// The parameters: JSON, `@file` to read them from a file, or `-` to read them from standard
    /// input.
    parameters: Option<String>,
    /// From 1, the default, to 9, which runs first.
    #[arg(long)]
    priority: Option<u8>,
    /// Run not before this moment, such as 2026-03-01T08:30:00Z.
    #[arg(long, conflicts_with = "delay")]
    run_at: Option<Moment>,
    /// Run after this delay: 30s, 1h 30m, PT30S.
    #[arg(long)]
    delay: Option<WireDuration>,
    /// The queue, instead of the one that tier and type lead to.
    #[arg(long)]
    queue: Option<String>,
    /// The tier of the owner, which decides the queue.
    #[arg(long)]
    tier: Option<String>,
    /// An idempotency key: repeating the command within 24 hours gives the same task.
    #[arg(long)]
    key: Option<String>,
    /// A business id to search by.
    #[arg(long)]
    task_key: Option<String>,
    /// How many attempts are made at most.
    #[arg(long)]
    max_attempts: Option<u32>,
    /// How long one attempt may take: 30s, PT30S.
    #[arg(long)]
    timeout: Option<WireDuration>,
    /// Show the task's progress until it has ended.
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    server: ServerOptions,
}

pub async fn run(submit: Submit) -> anyhow::Result<Exit> {
    let client = submit.server.client()?;
    let screen = submit.server.screen();
    let request = SubmitRequest {
        task_type: submit.task_type,
        parameters: submit.parameters.as_deref().map(parameters).transpose()?,
        priority: submit.priority,
        run_at: submit.run_at,
        delay: submit.delay,
        queue: submit.queue,
        tier: submit.tier,
        expected_duration: None,
        max_attempts: submit.max_attempts,
        timeout: submit.timeout,
        task_key: submit.task_key,
        correlation_id: None,
    };

    let answer = client.submit(&request, submit.key.as_deref()).await?;
    let id = answer.value.task_id;
    if submit.server.json {
        screen.line(&answer.text)?;
    } else {
        screen.line(id)?;
    }

    if submit.watch {
        return watch::follow(&client, screen, id, submit.server.json).await;
    }

    if !submit.server.json {
        screen.hint(format_args!(
            "The task is durable. Watch it: longhaul watch {id}"
        ))?;
    }

    Ok(Exit::Done)
}

/// Reads the parameters, which must be JSON. An error says where they are not.
fn parameters(given: &str) -> anyhow::Result<Box<RawValue>> {
    let (from, text) = if given == "-" {
        let from = "standard input";
        (from, read(std::io::stdin().lock()).context(from)?)
    } else if let Some(path) = given.strip_prefix('@') {
        let file = std::fs::File::open(path).with_context(|| format!("{path} cannot be read"))?;
        (path, read(file).with_context(|| path.to_owned())?)
    } else {
        ("PARAMETERS", given.to_owned())
    };

    serde_json::from_str(&text).with_context(|| {
        format!(
            "{from} is not JSON; allowed: JSON such as '{{\"ms\":500}}', @file, or - for standard \
             input"
        )
    })
}

fn read(source: impl std::io::Read) -> anyhow::Result<String> {
    let mut text = String::new();
    source.take(PARAMETER_BYTES + 1).read_to_string(&mut text)?;

    let bytes = u64::try_from(text.len())?;
    anyhow::ensure!(
        bytes <= PARAMETER_BYTES,
        "it has more than {PARAMETER_BYTES} bytes, which no server accepts"
    );
    Ok(text)
}
