//! PostgreSQL's doorbell: the suite of its contract, and what only a bell between processes promises.

use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::Trial;
use longhaul_domain::event::OutboxPolicy;
use longhaul_store::SqlStore;
use longhaul_testkit::{
    doorbell_suite::{self, DoorbellFactory},
    suite::Fresh,
};

use crate::{
    fresh::{Backend, options},
    trial,
};

pub(crate) fn trials() -> Vec<Trial> {
    let factory: DoorbellFactory = Arc::new(|()| {
        Box::pin(async {
            let (store, clock, database) = Backend::Postgres.store(OutboxPolicy::default()).await;
            let bell = store.doorbell().unwrap();
            Fresh::new(bell, clock, Some(Box::new((store, database))))
        })
    });
    let mut trials = doorbell_suite::trials("postgres", &factory);
    trials.push(trial("postgres::doorbell::another_process_hears_the_ring".to_owned(), another_process_hears_the_ring));
    trials
}

async fn another_process_hears_the_ring() {
    let (here, clock, database) = Backend::Postgres.store(OutboxPolicy::default()).await;
    let there = SqlStore::connect(&database.url, options(&clock, OutboxPolicy::default())).await.unwrap();
    let (rings, hears) = (here.doorbell().unwrap(), there.doorbell().unwrap());
    // Whoever begins to listen is told to look once.
    hears.heard().await;
    for _ in 0..5 {
        rings.ring("default");
        tokio::time::timeout(Duration::from_secs(60), hears.heard()).await.expect("the other process hears");
    }
    drop((rings, hears));
    there.close().await;
    here.close().await;
}
