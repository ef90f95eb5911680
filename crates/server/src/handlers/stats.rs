//! Counts and statistics.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use longhaul_api::{StatsView, TypeStats, platform::PercentilesView};
use longhaul_engine::queries::statistics::{Percentiles, Row, SPAN_HOURS};

use crate::{
    api::Api,
    openapi::{Doc, query_parameter},
    parameter_schemas,
    problem::ApiError,
    query::Query,
    reply,
};

/// The default span.
const DAY_MS: u64 = 24 * 3_600 * 1_000;
const LONGEST_MICROS: u64 = SPAN_HOURS as u64 * 3_600 * 1_000_000;

pub(crate) fn get_doc() -> Doc {
    let from = query_parameter(
        "from",
        "the start of the span; a day before its end by default",
        parameter_schemas::date_time(),
    );
    let to = query_parameter(
        "to",
        "the end of the span; now by default",
        parameter_schemas::date_time(),
    );

    Doc::new(
        "getStats",
        "Current counts, and statistics of a time span, by type and queue",
    )
    .parameters(vec![from, to])
    .answer::<StatsView>(200, "The statistics")
    .problems(&[400])
}

pub(crate) async fn get(State(api): State<Arc<Api>>, query: Query) -> Result<Response, ApiError> {
    let (from, to) = query.span()?;
    let to = match to {
        Some(to) => to,
        None => api.engine.reads().now().await?,
    };
    let from = from.unwrap_or_else(|| to.minus_ms(DAY_MS));

    let refuse = |problem: &str| ApiError::BadFilter {
        field: "from".to_owned(),
        problem: problem.to_owned(),
        allowed: format!("a moment before to, at most {} days", SPAN_HOURS / 24),
    };

    if from > to {
        return Err(refuse("is after to"));
    }
    if to.micros_since(from) > LONGEST_MICROS {
        return Err(refuse("is too long before to"));
    }

    let statistics = api.engine.statistics(from, to).await?;
    let types = statistics.rows.into_iter().map(view).collect();
    Ok(reply::ok(&StatsView {
        from: statistics.from.into(),
        to: statistics.to.into(),
        tasks: statistics.tasks,
        types,
    }))
}

fn view(row: Row) -> TypeStats {
    let [first, second, later] = row.completed_on;
    TypeStats {
        task_type: row.task_type,
        queue: row.queue,
        tasks: row.tasks,
        ended: row.ended,
        completed_on_first_attempt: first,
        completed_on_second_attempt: second,
        completed_later: later,
        wait: percentiles(row.wait),
        run: percentiles(row.run),
    }
}

const fn percentiles(of: Percentiles) -> PercentilesView {
    PercentilesView {
        p50_ms: of.p50_ms,
        p95_ms: of.p95_ms,
        p99_ms: of.p99_ms,
    }
}
