//! Submit one by one, from many, in bulk, and drain: each beside the bare loop.

use crate::{
    Plan,
    bare::Bare,
    database::Backend,
    ours,
    report::{Report, median},
};

/// The ratios that each database must reach.
struct Wanted {
    sixteen: Option<f64>,
    bulk: Option<f64>,
    drain: Option<f64>,
}

const fn wanted(backend: Backend) -> Wanted {
    match backend {
        Backend::Sqlite => Wanted { sixteen: None, bulk: Some(0.5), drain: Some(0.6) },
        Backend::Postgres => Wanted { sixteen: Some(0.8), bulk: Some(0.5), drain: Some(0.6) },
        Backend::MySql => Wanted { sixteen: Some(0.8), bulk: Some(0.5), drain: None },
    }
}

#[derive(Default)]
struct Rates {
    one: Vec<f64>,
    sixteen: Vec<f64>,
    bulk: Vec<f64>,
    drain: Vec<f64>,
}

/// A drain of many tasks and nothing else, long enough for a profiler.
pub(crate) async fn measure_drain(backend: Backend, plan: &Plan, report: &mut Report) -> anyhow::Result<()> {
    let n = if plan.quick { 20_000 } else { 100_000 };
    let (store, _) = backend.store("ours").await?;
    let loops = Bare::open(backend, "bare").await?;
    loops.submit_bulk(n).await?;
    ours::submit_bulk(&store, n).await?;
    let bare = loops.drain(n).await?;
    let our = ours::drain(&store, n).await?;
    report.rate(backend.name(), format!("drain of {n}, beside the bare batch loop"), our, bare, wanted(backend).drain);
    Ok(())
}

pub(crate) async fn measure(backend: Backend, plan: &Plan, report: &mut Report) -> anyhow::Result<()> {
    let scale = if plan.quick { 1 } else { 2 };
    let (one, many, bulk) = (1_000 * scale, 8_000 * scale, 10_000 * scale);
    let (mut our, mut bare) = (Rates::default(), Rates::default());
    for _ in 0..plan.repetitions {
        let (store, _) = backend.store("ours").await?;
        let loops = Bare::open(backend, "bare").await?;
        // Small steps of both in turn, so that a noisy moment meets both.
        bare.one.push(loops.submit(one, 1).await?);
        our.one.push(ours::submit(&store, one, 1).await?);
        bare.sixteen.push(loops.submit(many, 16).await?);
        our.sixteen.push(ours::submit(&store, many, 16).await?);
        bare.bulk.push(loops.submit_bulk(bulk).await?);
        our.bulk.push(ours::submit_bulk(&store, bulk).await?);
        bare.drain.push(loops.drain(one + many + bulk).await?);
        our.drain.push(ours::drain(&store, one + many + bulk).await?);
        drop(loops);
        store.close().await;
        drop(store);
        backend.remove("ours").await?;
        backend.remove("bare").await?;
    }
    let name = backend.name();
    let need = wanted(backend);
    let (our_one, our_sixteen) = (median(our.one), median(our.sixteen));
    report.rate(name, "submit, 1 caller, beside bare inserts", our_one, median(bare.one), None);
    report.rate(name, "submit, 16 callers, beside bare inserts", our_sixteen, median(bare.sixteen), need.sixteen);
    if backend == Backend::Sqlite {
        report.rate(name, "submit, 16 callers, beside 1 caller", our_sixteen, our_one, Some(5.0));
    }
    report.rate(name, "submit in bulk, beside bare multi-row inserts", median(our.bulk), median(bare.bulk), need.bulk);
    report.rate(name, "drain, beside the bare batch loop", median(our.drain), median(bare.drain), need.drain);
    Ok(())
}
