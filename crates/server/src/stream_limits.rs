//! Limits of live streams, so that no caller takes the connections of the others.
//!
//! A stream counts for its token and for its owner. A caller that may act for all owners has no
//! limit as an owner: one such token may serve the users of a whole application.

use std::collections::HashMap;
use std::sync::Arc;

use longhaul_domain::contract::store::Access;
use parking_lot::Mutex;

use crate::{identity::Caller, listener::ListenerSettings, problem::ApiError};

/// Counts live streams.
#[derive(Debug)]
pub(crate) struct StreamLimits {
    per_token: usize,
    per_owner: usize,
    open: Mutex<HashMap<Holder, usize>>,
}

/// For whom a stream is counted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Holder {
    /// A token, by its id.
    Token(String),
    /// A user that may act for all owners, where there are no tokens.
    Administrator(String),
    Owner(String),
}

impl StreamLimits {
    pub(crate) fn new(settings: &ListenerSettings) -> Self {
        Self {
            per_token: settings.streams_per_token,
            per_owner: settings.streams_per_owner,
            open: Mutex::default(),
        }
    }

    /// A slot for a stream of this caller. `token` is the id of the token in the mode that requires
    /// one.
    pub(crate) fn try_open(
        self: &Arc<Self>,
        caller: &Caller,
        token: Option<&str>,
    ) -> Result<StreamSlot, ApiError> {
        let holders = holders(caller, token);

        // One lock for check and count, so that two streams cannot take the last slot.
        let mut open = self.open.lock();
        for holder in &holders {
            let limit = self.limit(holder);
            if open.get(holder).copied().unwrap_or(0) >= limit {
                return Err(ApiError::TooManyStreams { limit });
            }
        }

        for holder in &holders {
            *open.entry(holder.clone()).or_default() += 1;
        }

        Ok(StreamSlot {
            _counted: Arc::new(CountedStream {
                limits: Arc::clone(self),
                holders,
            }),
        })
    }

    const fn limit(&self, holder: &Holder) -> usize {
        match holder {
            Holder::Token(_) | Holder::Administrator(_) => self.per_token,
            Holder::Owner(_) => self.per_owner,
        }
    }
}

fn holders(caller: &Caller, token: Option<&str>) -> Vec<Holder> {
    let owner = || caller.owner.clone();
    let token = token.map(|id| Holder::Token(id.to_owned()));

    match (token, caller.access()) {
        (Some(token), Access::All) => vec![token],
        (Some(token), Access::Owner(_)) => vec![token, Holder::Owner(owner())],
        (None, Access::All) => vec![Holder::Administrator(owner())],
        (None, Access::Owner(_)) => vec![Holder::Owner(owner())],
    }
}

/// An open stream. It counts until the last clone is dropped.
#[derive(Debug, Clone)]
pub(crate) struct StreamSlot {
    _counted: Arc<CountedStream>,
}

#[derive(Debug)]
struct CountedStream {
    limits: Arc<StreamLimits>,
    holders: Vec<Holder>,
}

impl Drop for CountedStream {
    fn drop(&mut self) {
        // One lock for all holders. One without streams is forgotten, or the map would grow.
        let mut open = self.limits.open.lock();
        for holder in &self.holders {
            if let Some(count) = open.get_mut(holder) {
                *count -= 1;
                if *count == 0 {
                    open.remove(holder);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Scope;

    fn limits() -> Arc<StreamLimits> {
        Arc::new(StreamLimits::new(&ListenerSettings {
            streams_per_token: 2,
            streams_per_owner: 1,
            ..ListenerSettings::default()
        }))
    }

    fn caller(owner: &str, scope: Scope) -> Caller {
        Caller::new(owner.to_owned(), vec![scope], None)
    }

    #[test]
    fn streams_of_an_owner_count_together_whatever_their_token() {
        let limits = limits();
        let [one, two] = ["u-1", "u-2"].map(|owner| caller(owner, Scope::Read));

        let open = limits.try_open(&one, Some("a")).unwrap();
        assert!(limits.try_open(&one, Some("b")).is_err());
        assert!(limits.try_open(&one, None).is_err());
        let _other = limits.try_open(&two, None).unwrap();

        let again = open.clone();
        drop(open);
        assert!(limits.try_open(&one, None).is_err(), "a clone is open");
        drop(again);
        assert!(limits.try_open(&one, None).is_ok());
        assert_eq!(limits.open.lock().len(), 1, "only the stream of u-2");
    }

    #[test]
    fn a_caller_for_all_owners_is_limited_as_a_token() {
        let limits = limits();
        let admin = caller("u-1", Scope::Admin);

        let _open = [0; 2].map(|_| limits.try_open(&admin, Some("a")).unwrap());
        let refused = limits.try_open(&admin, Some("a"));
        assert!(matches!(
            refused,
            Err(ApiError::TooManyStreams { limit: 2 })
        ));

        // The owner's other tokens are not concerned.
        let reader = caller("u-1", Scope::Read);
        assert!(limits.try_open(&reader, Some("b")).is_ok());
    }
}
