//! `longhaul submit`: makes a task.

use std::io::Read as _;

use anyhow::Context as _;
use longhaul_api::{Moment, SubmitRequest, WireDuration};
use serde_json::value::RawValue;

use super::watch;
use crate::client::{EXIT_CODES, Ending, ServerOptions};

/// Bytes of parameters that are read from a file or a pipe: what a server takes at most.
const PARAMETER_BYTES: u64 = 1024 * 1024;

/// What `submit` can be told.
#[derive(Debug, clap::Args)]
#[command(after_help = format!(
    "Examples:\n  longhaul submit sample.echo '{{\"hello\":\"world\"}}'\n  \
     longhaul submit sample.progress '{{\"steps\":50,\"stepMs\":200}}' --watch\n  \
     longhaul submit my.report @parameters.json --priority 7 --key report-2026-03\n  \
     jq -n '{{ms:500}}' | longhaul submit sample.sleep - --delay 1h\n\n{EXIT_CODES}"
))]
pub struct Submit {
    /// The name of a registered type. A wrong one is answered with the known ones.
    task_type: String,
    /// The parameters: JSON, `@file` to read them from a file, or `-` to read them from standard input.
    parameters: Option<String>,
    /// From 1, the default, to 9, which goes first.
    #[arg(long)]
    priority: Option<u8>,
    /// Not before this moment, like 2026-03-01T08:30:00Z.
    #[arg(long, conflicts_with = "delay")]
    run_at: Option<Moment>,
    /// Not before so long from now: 30s, 1h 30m, PT30S.
    #[arg(long)]
    delay: Option<WireDuration>,
    /// The queue, whatever tier and type say.
    #[arg(long)]
    queue: Option<String>,
    /// The owner's class, which decides the queue.
    #[arg(long)]
    tier: Option<String>,
    /// An idempotency key: the same command again within 24 hours is the same task.
    #[arg(long)]
    key: Option<String>,
    /// A business id to search by.
    #[arg(long)]
    task_key: Option<String>,
    #[arg(long, help = "How often it is tried at most")]
    max_attempts: Option<u32>,
    /// How long one attempt may take: 30s, PT30S.
    #[arg(long)]
    timeout: Option<WireDuration>,
    /// Show its progress until it has ended.
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    server: ServerOptions,
}

pub async fn run(submit: Submit) -> anyhow::Result<Ending> {
    let (client, screen) = (submit.server.client()?, submit.server.screen());
    let order = SubmitRequest {
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
    let answer = client.submit(&order, submit.key.as_deref()).await?;
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
            "It is durable. See how it goes: longhaul watch {id}"
        ))?;
    }
    Ok(Ending::Done)
}

/// The text of the parameters, which must be JSON: what is misspelled is told with its place.
fn parameters(given: &str) -> anyhow::Result<Box<RawValue>> {
    let (text, from) = if given == "-" {
        (
            read(std::io::stdin().lock()).context("standard input")?,
            "standard input",
        )
    } else if let Some(path) = given.strip_prefix('@') {
        let file = std::fs::File::open(path).with_context(|| format!("{path} cannot be read"))?;
        (read(file).with_context(|| path.to_owned())?, path)
    } else {
        (given.to_owned(), "PARAMETERS")
    };
    serde_json::from_str(&text).with_context(|| {
        format!("{from} is not JSON; allowed: JSON like '{{\"ms\":500}}', @file, or - for standard input")
    })
}

fn read(source: impl std::io::Read) -> anyhow::Result<String> {
    let mut text = String::new();
    source.take(PARAMETER_BYTES + 1).read_to_string(&mut text)?;
    let is_small = u64::try_from(text.len()).is_ok_and(|bytes| bytes <= PARAMETER_BYTES);
    anyhow::ensure!(
        is_small,
        "it has more than {PARAMETER_BYTES} bytes, which no server takes"
    );
    Ok(text)
}
