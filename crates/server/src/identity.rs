//! Who calls, and what they may do.
//!
//! There is one way in: [`identify`]. Each mode is a variant and an arm there.

use std::net::IpAddr;

use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, request::Parts},
};
use longhaul_domain::{bounds, contract::store::Access};

use crate::{network::Network, problem::ApiError, tokens::Standing};

/// The gateway's word for whose request this is.
const USER: &str = "x-user-id";
/// The gateway's word for what they may do, separated by spaces or commas.
const SCOPES: &str = "x-user-scopes";
/// The gateway's word for the tier of what they submit.
const TIER: &str = "x-user-tier";
/// The tier of everybody who has no other: anybody may say so.
pub(crate) const LOWEST_TIER: &str = "free";
/// Who calls in `dev` when nothing is said.
const DEFAULT_USER: &str = "default";

/// How callers are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdentityMode {
    /// Programs of this machine are trusted to be who they say, and may do everything.
    Dev,
    /// A gateway in front has checked who calls and says so in headers.
    TrustedHeader {
        /// Where the gateway calls from. Whoever calls from elsewhere is turned away.
        from: Vec<Network>,
    },
    /// Callers show a token that the store knows.
    Tokens,
}

/// What a caller may be allowed to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// See one's own tasks.
    Read,
    /// Submit, change, cancel and retry one's own tasks.
    Write,
    /// See queues, nodes and statistics; pause and resume queues.
    Operate,
    /// All of it, for everybody's tasks. Never given without being asked for.
    Admin,
}

impl Scope {
    /// All there are, the weakest first.
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Operate, Self::Admin];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "tasks:read",
            Self::Write => "tasks:write",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }

    /// The scope of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == name)
    }
}

/// A caller who is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    pub(crate) owner: String,
    scopes: Vec<Scope>,
    /// The tier that all their tasks have.
    pub(crate) tier: Option<String>,
    /// Whether they are trusted to say, if they have none.
    names_tiers: bool,
}

impl Caller {
    pub(crate) const fn new(owner: String, scopes: Vec<Scope>, tier: Option<String>) -> Self {
        Self {
            owner,
            scopes,
            tier,
            names_tiers: false,
        }
    }

    /// Whether this caller may name any tier and any queue: an administrator, or a program of a machine that trusts all.
    pub(crate) fn may_name_tiers(&self) -> bool {
        self.tier.is_none() && (self.names_tiers || self.scopes.contains(&Scope::Admin))
    }

    /// Whose name the call is made in; what it makes is theirs.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// The tier that what they submit has; nothing when neither their token nor their gateway nor anybody else names one.
    pub fn tier(&self) -> Option<&str> {
        self.tier.as_deref()
    }

    /// Whether the caller has the scope.
    pub fn may(&self, scope: Scope) -> bool {
        self.scopes.contains(&scope) || self.scopes.contains(&Scope::Admin)
    }

    /// Whose tasks this caller sees and changes.
    pub fn access(&self) -> Access {
        if self.scopes.contains(&Scope::Admin) {
            Access::All
        } else {
            Access::Owner(self.owner.clone())
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        // The guard has put it there; a public route has none.
        parts
            .extensions
            .get()
            .cloned()
            .ok_or(ApiError::Unidentified)
    }
}

/// Who the request is from. `token` is what it shows, where tokens are asked for.
pub(crate) async fn identify(
    mode: &IdentityMode,
    peer: IpAddr,
    headers: &HeaderMap,
    token: Option<&Standing>,
) -> Result<Caller, ApiError> {
    match mode {
        IdentityMode::Tokens => token.ok_or(ApiError::NoToken)?.caller().await,
        IdentityMode::Dev => {
            if !peer.to_canonical().is_loopback() {
                return Err(ApiError::NotLocal);
            }
            let owner = user(headers)?.unwrap_or(DEFAULT_USER).to_owned();
            let scopes = scopes(headers).unwrap_or(vec![Scope::Read, Scope::Write, Scope::Operate]);
            Ok(Caller {
                names_tiers: true,
                ..Caller::new(owner, scopes, tier(headers)?)
            })
        }
        IdentityMode::TrustedHeader { from } => {
            if !from.iter().any(|network| network.contains(peer)) {
                return Err(ApiError::NotTheGateway);
            }
            let owner = user(headers)?.ok_or(ApiError::Unidentified)?.to_owned();
            let scopes = scopes(headers).unwrap_or(vec![Scope::Read, Scope::Write]);
            Ok(Caller::new(owner, scopes, tier(headers)?))
        }
    }
}

/// The user that the header names. Two such headers may be one of the gateway's and one of the caller's: refused.
fn user(headers: &HeaderMap) -> Result<Option<&str>, ApiError> {
    let mut given = headers.get_all(USER).iter();
    let Some(value) = given.next() else {
        return Ok(None);
    };
    let text = std::str::from_utf8(value.as_bytes()).map_err(|_| ApiError::Unidentified)?;
    if given.next().is_some() || bounds::check_name("userId", text).is_err() {
        return Err(ApiError::Unidentified);
    }
    Ok(Some(text))
}

/// The tier that the header names. Two such headers, or one that is no tier, are refused: the caller may have sent it.
fn tier(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let mut given = headers.get_all(TIER).iter();
    let Some(value) = given.next() else {
        return Ok(None);
    };
    let text = value.to_str().unwrap_or("");
    if given.next().is_some() || bounds::check_label("tier", text).is_err() {
        return Err(ApiError::Unidentified);
    }
    Ok(Some(text.to_owned()))
}

/// The scopes that the header names; names that nobody knows give nothing. A second header takes all away.
fn scopes(headers: &HeaderMap) -> Option<Vec<Scope>> {
    let mut given = headers.get_all(SCOPES).iter();
    let value = given.next()?;
    if given.next().is_some() {
        return Some(Vec::new());
    }
    let text = value.to_str().unwrap_or("");
    let names: Vec<&str> = text.split([' ', ',']).collect();
    Some(
        Scope::ALL
            .into_iter()
            .filter(|scope| names.contains(&scope.as_str()))
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn known(
        mode: &IdentityMode,
        peer: IpAddr,
        pairs: &[(&'static str, &'static str)],
    ) -> Result<Caller, ApiError> {
        let headers = headers(pairs);
        futures::FutureExt::now_or_never(identify(mode, peer, &headers, None))
            .expect("nobody is asked")
    }

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(*name, value.parse().unwrap());
        }
        map
    }

    #[test]
    fn dev_trusts_this_machine_and_nobody_else() {
        let caller = known(&IdentityMode::Dev, HERE, &[]).unwrap();
        assert_eq!(caller.access(), Access::Owner("default".to_owned()));
        assert!(
            [Scope::Read, Scope::Write, Scope::Operate]
                .iter()
                .all(|scope| caller.may(*scope))
        );
        let mapped = IpAddr::V6(Ipv4Addr::LOCALHOST.to_ipv6_mapped());
        assert!(known(&IdentityMode::Dev, mapped, &[]).is_ok());
        let elsewhere = [
            IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
            IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        ];
        assert!(
            elsewhere
                .iter()
                .all(|peer| known(&IdentityMode::Dev, *peer, &[]).is_err())
        );
    }

    #[test]
    fn a_gateway_must_say_who_calls() {
        let mode = IdentityMode::TrustedHeader {
            from: Network::LOOPBACK.to_vec(),
        };
        let elsewhere = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
        let spoofed = known(&mode, elsewhere, &[("x-user-id", "u-1")]);
        assert!(matches!(spoofed, Err(ApiError::NotTheGateway)));
        let known = |pairs: &[_]| known(&mode, HERE, pairs);
        assert!(known(&[]).is_err());
        assert!(known(&[("x-user-id", "")]).is_err());
        assert!(known(&[("x-user-id", "u-1"), ("x-user-id", "u-2")]).is_err());
        let caller = known(&[("x-user-id", "u-1")]).unwrap();
        assert!(caller.may(Scope::Write) && !caller.may(Scope::Operate));
    }

    #[test]
    fn a_gateway_says_the_tier_and_whoever_calls_through_it_does_not() {
        let mode = IdentityMode::TrustedHeader {
            from: Network::LOOPBACK.to_vec(),
        };
        let known = |more: &[(&'static str, &'static str)]| {
            known(&mode, HERE, &[&[("x-user-id", "u-1")], more].concat())
        };
        let vip = known(&[("x-user-tier", "vip")]).unwrap();
        assert_eq!((vip.tier(), vip.may_name_tiers()), (Some("vip"), false));
        assert!(!known(&[]).unwrap().may_name_tiers());
        assert!(
            known(&[("x-user-scopes", "admin")])
                .unwrap()
                .may_name_tiers()
        );
        for bad in [
            &[("x-user-tier", "")][..],
            &[("x-user-tier", "a b")],
            &[("x-user-tier", "a"), ("x-user-tier", "b")],
        ] {
            assert!(known(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn only_a_caller_who_is_called_an_administrator_sees_all() {
        let known = |scopes| known(&IdentityMode::Dev, HERE, &[("x-user-scopes", scopes)]).unwrap();
        assert_eq!(known("tasks:read, admin").access(), Access::All);
        assert!(!known("tasks:read").may(Scope::Write));
        assert!(!known("everything").may(Scope::Read));
    }
}
