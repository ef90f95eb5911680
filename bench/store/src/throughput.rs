//! Single submits, concurrent submits, bulk submits and drains, each beside the same statements and
//! beside a minimal table.

use longhaul_store::SqlStore;

use crate::{
    Plan,
    bare::Bare,
    database::Backend,
    ours,
    report::{Report, median},
    same::Same,
};

/// Every measure of a repetition is taken in this many steps, alternating between all three sides,
/// so that a slow minute affects all of them. The median of all steps is reported, so that a stall
/// of the disk does not count.
const TURNS: usize = 4;

/// The ratios that each database must reach beside the same statements.
struct Wanted {
    sixteen: Option<f64>,
    bulk: Option<f64>,
    drain: Option<f64>,
}

const fn wanted(backend: Backend) -> Wanted {
    match backend {
        Backend::Sqlite => Wanted {
            sixteen: None,
            bulk: Some(0.5),
            drain: Some(0.6),
        },
        Backend::Postgres => Wanted {
            sixteen: Some(0.8),
            bulk: Some(0.5),
            drain: Some(0.6),
        },
        Backend::MySql => Wanted {
            sixteen: Some(0.8),
            bulk: Some(0.5),
            drain: None,
        },
    }
}

/// The rates of all steps of one side, in order.
#[derive(Default)]
struct Rates {
    one: Vec<f64>,
    sixteen: Vec<f64>,
    bulk: Vec<f64>,
    drain: Vec<f64>,
}

/// The three sides: without Longhaul's schema, without its code, and with both.
struct Sides {
    minimal: Bare,
    same: Same,
    same_url: String,
    store: SqlStore,
    store_url: String,
}

impl Sides {
    async fn open(backend: Backend) -> anyhow::Result<Self> {
        let minimal = Bare::open(backend, "bare").await?;
        let (same, same_url) = Same::open(backend, "same").await?;
        let (store, store_url) = backend.store("ours").await?;
        Ok(Self {
            minimal,
            same,
            same_url,
            store,
            store_url,
        })
    }

    /// Fails unless every submitted task is completed.
    async fn expect_completed(&self, backend: Backend, n: usize) -> anyhow::Result<()> {
        backend.expect_completed(&self.same_url, n).await?;
        backend.expect_completed(&self.store_url, n).await
    }

    async fn remove(self, backend: Backend) -> anyhow::Result<()> {
        self.store.close().await;
        drop(self);
        for name in ["bare", "same", "ours"] {
            backend.remove(name).await?;
        }
        Ok(())
    }
}

/// Measures only a drain of many tasks, long enough for a profiler.
pub(crate) async fn measure_drain(
    backend: Backend,
    plan: &Plan,
    report: &mut Report,
) -> anyhow::Result<()> {
    let n = if plan.quick { 20_000 } else { 100_000 };
    let sides = Sides::open(backend).await?;
    sides.minimal.submit_bulk(n).await?;
    sides.same.submit_bulk(n).await?;
    ours::submit_bulk(&sides.store, n).await?;
    let minimal = sides.minimal.drain(n).await?;
    let same = sides.same.drain(n).await?;
    let our = ours::drain(&sides.store, n).await?;

    sides.expect_completed(backend, n).await?;
    let what = format!("drain of {n}");
    beside_both(
        report,
        backend,
        &what,
        our,
        (same, wanted(backend).drain),
        minimal,
    );

    sides.remove(backend).await
}

pub(crate) async fn measure(
    backend: Backend,
    plan: &Plan,
    report: &mut Report,
) -> anyhow::Result<()> {
    let mut minimal = Rates::default();
    let mut same = Rates::default();
    let mut our = Rates::default();
    for _ in 0..plan.repetitions {
        repetition(backend, plan, &mut minimal, &mut same, &mut our).await?;
    }

    let need = wanted(backend);
    let our_one = median(our.one);
    let our_sixteen = median(our.sixteen);

    beside_both(
        report,
        backend,
        "submit, 1 caller",
        our_one,
        (median(same.one), None),
        median(minimal.one),
    );

    let same_sixteen = (median(same.sixteen), need.sixteen);
    beside_both(
        report,
        backend,
        "submit, 16 callers",
        our_sixteen,
        same_sixteen,
        median(minimal.sixteen),
    );

    if backend == Backend::Sqlite {
        report.rate(
            backend.name(),
            "submit, 16 callers, beside 1 caller",
            our_sixteen,
            our_one,
            Some(5.0),
        );
    }

    let same_bulk = (median(same.bulk), need.bulk);
    beside_both(
        report,
        backend,
        "submit in bulk",
        median(our.bulk),
        same_bulk,
        median(minimal.bulk),
    );

    let same_drain = (median(same.drain), need.drain);
    beside_both(
        report,
        backend,
        "drain",
        median(our.drain),
        same_drain,
        median(minimal.drain),
    );

    Ok(())
}

/// All measures on fresh databases, in small steps.
async fn repetition(
    backend: Backend,
    plan: &Plan,
    minimal: &mut Rates,
    same: &mut Rates,
    our: &mut Rates,
) -> anyhow::Result<()> {
    let scale = if plan.quick { 1 } else { 2 };
    let one = 250 * scale;
    let many = 2_000 * scale;
    let bulk = 2_000 * scale;
    let all = one + many + bulk;
    let sides = Sides::open(backend).await?;
    let store = &sides.store;

    for turn in 1..=TURNS {
        minimal.one.push(sides.minimal.submit(one, 1).await?);
        same.one.push(sides.same.submit(one, 1).await?);
        our.one.push(ours::submit(store, one, 1).await?);
        minimal.sixteen.push(sides.minimal.submit(many, 16).await?);
        same.sixteen.push(sides.same.submit(many, 16).await?);
        our.sixteen.push(ours::submit(store, many, 16).await?);
        minimal.bulk.push(sides.minimal.submit_bulk(bulk).await?);
        same.bulk.push(sides.same.submit_bulk(bulk).await?);
        our.bulk.push(ours::submit_bulk(store, bulk).await?);

        minimal.drain.push(sides.minimal.drain(all).await?);
        same.drain.push(sides.same.drain(all).await?);
        our.drain.push(ours::drain(store, all).await?);
        sides.expect_completed(backend, turn * all).await?;
    }

    sides.remove(backend).await
}

/// Adds two rows: beside the same statements, with the required ratio, and beside the minimal
/// table.
fn beside_both(
    report: &mut Report,
    backend: Backend,
    what: &str,
    our: f64,
    (same, wanted): (f64, Option<f64>),
    minimal: f64,
) {
    report.rate(
        backend.name(),
        format!("{what}, beside the same statements"),
        our,
        same,
        wanted,
    );

    report.rate(
        backend.name(),
        format!("{what}, beside the minimal table"),
        our,
        minimal,
        None,
    );
}
