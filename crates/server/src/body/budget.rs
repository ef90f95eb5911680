//! The budget of request bodies: how many bytes of them this process keeps in memory at once, in
//! all and per token.
//!
//! A request reserves the length of its body before the body is read, and keeps it until its
//! handler has ended. So the budget holds whatever clients send, and one token leaves room for the
//! others. An owner with several tokens has several shares.

use std::collections::HashMap;
use std::sync::Arc;

use axum::body::{Body, HttpBody as _};
use parking_lot::Mutex;

use super::BODY_BYTES;
use crate::{listener::ListenerSettings, problem::ApiError};

#[derive(Debug)]
pub(crate) struct BodyBudget {
    total: usize,
    per_caller: usize,
    reserved: Mutex<ReservedBytes>,
}

#[derive(Debug, Default)]
struct ReservedBytes {
    total: usize,
    by_caller: HashMap<String, usize>,
}

impl BodyBudget {
    pub(crate) fn new(settings: &ListenerSettings) -> Self {
        Self {
            total: settings.body_bytes,
            per_caller: settings.body_bytes_per_token,
            reserved: Mutex::default(),
        }
    }

    /// Reserves room for the body. One of unknown length reserves the most that a body may have,
    /// and one that is too large none: it is refused unread.
    pub(crate) fn try_reserve(
        self: &Arc<Self>,
        caller: &str,
        body: &Body,
    ) -> Result<BodyReservation, ApiError> {
        let announced = body.size_hint().upper();
        let announced = announced.map_or(BODY_BYTES, |bytes| {
            usize::try_from(bytes).unwrap_or(usize::MAX)
        });
        let bytes = if announced > BODY_BYTES { 0 } else { announced };

        if bytes > 0 {
            // One lock for check and count, so that two bodies cannot take the last room.
            let mut reserved = self.reserved.lock();
            let by_caller = reserved.by_caller.get(caller).copied().unwrap_or(0);
            if reserved.total + bytes > self.total || by_caller + bytes > self.per_caller {
                return Err(ApiError::TooManyBodies);
            }

            reserved.total += bytes;
            let by_caller = by_caller + bytes;
            reserved.by_caller.insert(caller.to_owned(), by_caller);
        }

        Ok(BodyReservation {
            budget: Arc::clone(self),
            caller: caller.to_owned(),
            bytes,
        })
    }
}

/// Reserved room for one body. Dropping it frees the room.
#[derive(Debug)]
pub(crate) struct BodyReservation {
    budget: Arc<BodyBudget>,
    caller: String,
    bytes: usize,
}

impl Drop for BodyReservation {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }

        // One lock for both counts. A caller without bodies is forgotten, or the map would grow.
        let mut reserved = self.budget.reserved.lock();
        reserved.total -= self.bytes;
        if let Some(by_caller) = reserved.by_caller.get_mut(&self.caller) {
            *by_caller -= self.bytes;
            if *by_caller == 0 {
                reserved.by_caller.remove(&self.caller);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_share_a_budget_in_all_and_per_caller() {
        let budget = Arc::new(BodyBudget::new(&ListenerSettings {
            body_bytes: 30,
            body_bytes_per_token: 20,
            ..ListenerSettings::default()
        }));
        let reserve = |caller: &str, bytes: usize| {
            let body = Body::from(vec![0; bytes]);
            budget.try_reserve(caller, &body)
        };

        let first = reserve("a", 20).unwrap();
        assert!(reserve("a", 1).is_err(), "the budget of the caller");
        let _second = reserve("b", 10).unwrap();
        assert!(reserve("c", 1).is_err(), "the budget of the process");
        assert!(reserve("c", 0).is_ok() && reserve("c", BODY_BYTES + 1).is_ok());

        drop(first);
        assert!(reserve("a", 20).is_ok());
        assert_eq!(budget.reserved.lock().by_caller.len(), 1, "only b");
    }

    #[test]
    fn a_body_of_unknown_length_reserves_the_most_that_it_may_have() {
        let budget = Arc::new(BodyBudget::new(&ListenerSettings {
            body_bytes: BODY_BYTES,
            body_bytes_per_token: BODY_BYTES,
            ..ListenerSettings::default()
        }));
        let unknown = Body::from_stream(futures::stream::pending::<std::io::Result<Vec<u8>>>());

        let _reserved = budget.try_reserve("a", &unknown).unwrap();
        assert!(budget.try_reserve("b", &Body::from("x")).is_err());
    }
}
