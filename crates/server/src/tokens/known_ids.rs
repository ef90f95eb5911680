//! The ids of all tokens, read from the store together, so that an unknown token costs no read of
//! its own.
//!
//! A token may have been made by another process a moment ago. An id that is not in the set
//! therefore waits for a reading that began after its request arrived. All such requests share one
//! reading, and readings begin at most once per [`INTERVAL`]. No request waits for the tokens of
//! others longer than that, however many unknown tokens arrive, as long as there are at most
//! [`IDS`] tokens.

use std::collections::HashSet;
use std::time::Duration;

use longhaul_domain::{StoreError, bounds};
use longhaul_engine::Engine;
use parking_lot::Mutex;
use tokio::time::Instant;

/// The shortest time between the beginnings of two readings.
const INTERVAL: Duration = Duration::from_secs(1);
/// Ids in the set, about 10 MiB. Any further id is looked up alone, one at a time.
const IDS: usize = 100_000;

#[derive(Debug)]
pub(super) struct KnownIds {
    latest: Mutex<Reading>,
    /// Held by the request that reads for all that wait.
    turn: tokio::sync::Mutex<()>,
}

/// What the latest reading found.
#[derive(Debug)]
struct Reading {
    began_at: Option<Instant>,
    /// When the last reading was begun, also one that was dropped before its end.
    attempted_at: Option<Instant>,
    /// A failed reading keeps the ids of the one before.
    ids: HashSet<String>,
    /// Whether `ids` has every token of the store.
    is_complete: bool,
    outcome: Result<(), StoreError>,
}

impl KnownIds {
    pub(super) fn new() -> Self {
        Self {
            latest: Mutex::new(Reading {
                began_at: None,
                attempted_at: None,
                ids: HashSet::new(),
                is_complete: false,
                outcome: Ok(()),
            }),
            turn: tokio::sync::Mutex::default(),
        }
    }

    /// Whether the store has a token with this id.
    pub(super) async fn contains(&self, engine: &Engine, id: &str) -> Result<bool, StoreError> {
        let arrived_at = Instant::now();
        if self.latest.lock().ids.contains(id) {
            return Ok(true);
        }

        // One request reads, and the others wait for it here. If it is dropped, the next one reads.
        let _turn = self.turn.lock().await;
        let began_at = self.latest.lock().began_at;
        if began_at.is_none_or(|began| began < arrived_at) {
            let attempted_at = self.latest.lock().attempted_at;
            if let Some(attempted) = attempted_at {
                tokio::time::sleep_until(attempted + INTERVAL).await;
            }
            self.read(engine).await;
        }

        {
            let latest = self.latest.lock();
            latest.outcome.clone()?;
            if latest.is_complete || latest.ids.contains(id) {
                return Ok(latest.ids.contains(id));
            }
        }

        // The turn is still held, so that unknown tokens cause one read at a time.
        Ok(engine.tokens().find_token(id).await?.is_some())
    }

    /// Forgets the id of a token that the store has removed.
    pub(super) fn forget(&self, id: &str) {
        self.latest.lock().ids.remove(id);
    }

    async fn read(&self, engine: &Engine) {
        let began_at = Instant::now();
        // Noted before the reading: clients that disconnect must not cause one after the other.
        self.latest.lock().attempted_at = Some(began_at);
        let read = all_ids(engine).await;

        // One lock for the whole result, so that no request sees half of it.
        let mut latest = self.latest.lock();
        latest.began_at = Some(began_at);
        latest.outcome = match read {
            Ok(ids) => {
                latest.is_complete = ids.len() < IDS;
                latest.ids = ids;
                Ok(())
            }
            Err(error) => Err(error),
        };
    }
}

/// The ids of all tokens, at most [`IDS`]. Ended ones are among them: they are refused by name.
async fn all_ids(engine: &Engine) -> Result<HashSet<String>, StoreError> {
    let mut ids = HashSet::new();
    let mut after: Option<String> = None;

    while ids.len() < IDS {
        let page = engine.tokens();
        let page = page
            .list_tokens(after.as_deref(), bounds::PAGE_SIZE)
            .await?;
        let is_last = page.len() < bounds::PAGE_SIZE;

        after = page.last().map(|token| token.id.clone());
        ids.extend(page.into_iter().map(|token| token.id));
        if is_last {
            break;
        }
    }

    Ok(ids)
}
