//! Access tokens of callers: what the store keeps of one, and what a new one needs. The text itself
//! is a [`TokenText`](crate::token_text::TokenText), which no store ever sees.

use subtle::ConstantTimeEq as _;

use crate::{bounds, error::Invalid, time::Timestamp, token_text::TokenText};

/// Scopes of one token. Fewer exist.
const SCOPES: usize = 20;
/// How often the last use of a token is noted, in milliseconds: a note is a write, and most
/// requests are none.
pub const TOUCH_EVERY_MS: u64 = 60_000;
/// How long a token is listed after its end, in milliseconds: 30 days.
pub const KEEP_ENDED_MS: u64 = 30 * 24 * 3_600 * 1_000;

/// A token without its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessToken {
    /// The public part of the text, by which it is listed and revoked.
    pub id: String,
    /// How the text begins: `lh_live_1a2b3c4d`.
    pub prefix: String,
    /// The owner whose tasks it gives access to.
    pub owner: String,
    /// The tier of all tasks submitted with it. Without one, the submitter may name a tier.
    pub tier: Option<String>,
    pub scopes: Vec<String>,
    /// A description for people.
    pub name: String,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
    /// When it was last used, noted at most once a minute.
    pub last_used_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
}

/// Whether a token is valid at some moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenStanding {
    Good,
    Expired,
    Revoked,
}

impl AccessToken {
    /// When its validity ends or has ended.
    pub fn ends_at(&self) -> Timestamp {
        self.revoked_at
            .map_or(self.expires_at, |revoked| revoked.min(self.expires_at))
    }

    /// Whether it is valid at `now`.
    pub fn standing(&self, now: Timestamp) -> TokenStanding {
        if self.revoked_at.is_some() {
            return TokenStanding::Revoked;
        }

        if self.expires_at <= now {
            TokenStanding::Expired
        } else {
            TokenStanding::Good
        }
    }
}

/// A token in the store, read at a moment of the store's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownToken {
    pub token: AccessToken,
    pub digest: TokenDigest,
    pub seen_at: Timestamp,
}

/// The SHA-256 of a token's text. The text is too random to be found from its digest.
#[derive(Clone, Copy)]
pub struct TokenDigest(pub [u8; 32]);

impl TokenDigest {
    /// Whether it is the digest of this text. The comparison takes constant time.
    pub fn is_of(&self, text: &TokenText) -> bool {
        *self == text.digest()
    }
}

impl PartialEq for TokenDigest {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for TokenDigest {}

impl std::fmt::Debug for TokenDigest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenDigest(…)")
    }
}

/// A token to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewAccessToken {
    pub id: String,
    pub prefix: String,
    pub digest: TokenDigest,
    pub owner: String,
    pub tier: Option<String>,
    pub scopes: Vec<String>,
    pub name: String,
    /// How long it is valid, in milliseconds.
    pub ttl_ms: u64,
}

impl NewAccessToken {
    pub fn check(&self) -> Result<(), Invalid> {
        bounds::check_label("tokenId", &self.id)?;
        bounds::check_label("prefix", &self.prefix)?;
        bounds::check_name("userId", &self.owner)?;
        if let Some(tier) = &self.tier {
            bounds::check_label("tier", tier)?;
        }
        bounds::check_name("name", &self.name)?;
        for scope in &self.scopes {
            bounds::check_label("scopes", scope)?;
        }

        if !(1..=SCOPES).contains(&self.scopes.len()) {
            let problem = format!("has {} items", self.scopes.len());
            return Err(Invalid::new(
                "scopes",
                problem,
                format!("1 to {SCOPES} scopes"),
            ));
        }

        if self.ttl_ms == 0 {
            return Err(Invalid::new("expires", "is 0", "a time in the future"));
        }

        bounds::check_duration_ms("expires", self.ttl_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_valid_until_it_expires_or_is_revoked() {
        let at = Timestamp::from_micros;
        let token = AccessToken {
            id: "1".to_owned(),
            prefix: "lh_live_1".to_owned(),
            owner: "u-1".to_owned(),
            tier: None,
            scopes: vec!["tasks:read".to_owned()],
            name: "ci".to_owned(),
            created_at: at(0),
            expires_at: at(10),
            last_used_at: None,
            revoked_at: None,
        };

        assert_eq!(token.standing(at(9)), TokenStanding::Good);
        assert_eq!(token.standing(at(10)), TokenStanding::Expired);
        let revoked = AccessToken {
            revoked_at: Some(at(5)),
            ..token
        };

        assert_eq!(revoked.standing(at(9)), TokenStanding::Revoked);
    }
}
