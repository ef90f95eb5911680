//! Identifies callers and their rights.
//!
//! [`identify`] is the only way to get a [`Caller`]. Each identity mode is an arm there.

use std::net::IpAddr;

use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, request::Parts},
};
use longhaul_domain::{bounds, contract::store::Access};

use crate::{gateway::Gateway, problem::ApiError, tokens::PresentedToken};

/// The gateway's header with the user's id.
const USER: &str = "x-user-id";
/// The gateway's header with scopes, separated by spaces or commas.
const SCOPES: &str = "x-user-scopes";
/// The gateway's header with the tier of submitted tasks.
const TIER: &str = "x-user-tier";
/// The tier of callers without one. Every caller may name it.
pub(crate) const LOWEST_TIER: &str = "free";
/// The user in `dev` mode when no header names one.
const DEFAULT_USER: &str = "default";

/// How callers are identified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdentityMode {
    /// Trusts every program on this machine to be the user that it names.
    Dev,
    /// Trusts the headers of a gateway that has authenticated the caller.
    TrustedHeader(Gateway),
    /// Requires an access token that the store knows.
    Tokens,
}

/// A right of a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Read the caller's own tasks.
    Read,
    /// Submit, change, cancel and retry the caller's own tasks.
    Write,
    /// Read queues, nodes and statistics; pause and resume queues.
    Operate,
    /// All rights on the tasks of all users. Never granted by default.
    Admin,
}

impl Scope {
    /// All scopes, the weakest first.
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

/// An identified caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    pub(crate) owner: String,
    scopes: Vec<Scope>,
    /// The tier of the caller's tasks.
    pub(crate) tier: Option<String>,
    /// Whether a caller without a tier may name any.
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

    /// Whether the caller may name any tier and any queue: administrators, and every caller in
    /// `dev` mode, unless they have a tier.
    pub(crate) fn may_name_tiers(&self) -> bool {
        self.tier.is_none() && (self.names_tiers || self.scopes.contains(&Scope::Admin))
    }

    /// The user who owns what the call creates.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// The tier of submitted tasks, if the token, the gateway or a tier source names one.
    pub fn tier(&self) -> Option<&str> {
        self.tier.as_deref()
    }

    /// Whether the caller has the scope.
    pub fn may(&self, scope: Scope) -> bool {
        self.scopes.contains(&scope) || self.scopes.contains(&Scope::Admin)
    }

    /// The tasks that the caller may read and change.
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
        // The guard sets it on every route that is not public.
        let caller = parts.extensions.get().cloned();
        caller.ok_or(ApiError::Unidentified)
    }
}

/// Identifies the caller. `token` is the presented token in the mode that requires one.
pub(crate) async fn identify(
    mode: &IdentityMode,
    peer: IpAddr,
    headers: &HeaderMap,
    token: Option<&PresentedToken>,
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
        IdentityMode::TrustedHeader(gateway) => {
            gateway.check(peer, headers)?;
            let owner = user(headers)?.ok_or(ApiError::Unidentified)?.to_owned();
            let scopes = scopes(headers).unwrap_or(vec![Scope::Read, Scope::Write]);
            Ok(Caller::new(owner, scopes, tier(headers)?))
        }
    }
}

/// The user in the header. Two headers are refused: one of them may be the caller's own.
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

/// The tier in the header. Two headers, or an invalid tier, are refused: the caller may have sent
/// them.
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

/// The scopes in the header. Unknown names are ignored. Two headers grant nothing.
fn scopes(headers: &HeaderMap) -> Option<Vec<Scope>> {
    let mut given = headers.get_all(SCOPES).iter();
    let value = given.next()?;
    if given.next().is_some() {
        return Some(Vec::new());
    }

    let text = value.to_str().unwrap_or("");
    let names: Vec<&str> = text.split([' ', ',']).collect();
    let named = |scope: &Scope| names.contains(&scope.as_str());
    Some(Scope::ALL.into_iter().filter(named).collect())
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;
    use crate::network::Network;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn identified(
        mode: &IdentityMode,
        peer: IpAddr,
        pairs: &[(&'static str, &'static str)],
    ) -> Result<Caller, ApiError> {
        let headers = headers(pairs);
        futures::FutureExt::now_or_never(identify(mode, peer, &headers, None))
            .expect("no read of the store")
    }

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(*name, value.parse().unwrap());
        }
        map
    }

    #[test]
    fn dev_mode_trusts_only_this_machine() {
        let caller = identified(&IdentityMode::Dev, HERE, &[]).unwrap();
        assert_eq!(caller.access(), Access::Owner("default".to_owned()));
        assert!(
            [Scope::Read, Scope::Write, Scope::Operate]
                .iter()
                .all(|scope| caller.may(*scope))
        );
        let mapped = IpAddr::V6(Ipv4Addr::LOCALHOST.to_ipv6_mapped());
        assert!(identified(&IdentityMode::Dev, mapped, &[]).is_ok());

        let elsewhere = [
            IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
            IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        ];
        assert!(
            elsewhere
                .iter()
                .all(|peer| identified(&IdentityMode::Dev, *peer, &[]).is_err())
        );
    }

    #[test]
    fn a_gateway_must_name_the_user() {
        let mode = IdentityMode::TrustedHeader(Gateway::within(Network::LOOPBACK.to_vec()));
        let elsewhere = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
        let spoofed = identified(&mode, elsewhere, &[("x-user-id", "u-1")]);
        assert!(matches!(spoofed, Err(ApiError::NotTheGateway)));
        let identified = |pairs: &[_]| identified(&mode, HERE, pairs);
        assert!(identified(&[]).is_err());
        assert!(identified(&[("x-user-id", "")]).is_err());

        assert!(identified(&[("x-user-id", "u-1"), ("x-user-id", "u-2")]).is_err());
        let caller = identified(&[("x-user-id", "u-1")]).unwrap();
        assert!(caller.may(Scope::Write) && !caller.may(Scope::Operate));
    }

    #[test]
    fn the_gateway_decides_the_tier_and_the_caller_does_not() {
        let mode = IdentityMode::TrustedHeader(Gateway::within(Network::LOOPBACK.to_vec()));
        let identified = |more: &[(&'static str, &'static str)]| {
            identified(&mode, HERE, &[&[("x-user-id", "u-1")], more].concat())
        };
        let vip = identified(&[("x-user-tier", "vip")]).unwrap();

        assert_eq!((vip.tier(), vip.may_name_tiers()), (Some("vip"), false));
        assert!(!identified(&[]).unwrap().may_name_tiers());
        assert!(
            identified(&[("x-user-scopes", "admin")])
                .unwrap()
                .may_name_tiers()
        );

        for bad in [
            &[("x-user-tier", "")][..],
            &[("x-user-tier", "a b")],
            &[("x-user-tier", "a"), ("x-user-tier", "b")],
        ] {
            assert!(identified(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn only_an_administrator_sees_all_tasks() {
        let identified =
            |scopes| identified(&IdentityMode::Dev, HERE, &[("x-user-scopes", scopes)]).unwrap();
        assert_eq!(identified("tasks:read, admin").access(), Access::All);
        assert!(!identified("tasks:read").may(Scope::Write));
        assert!(!identified("everything").may(Scope::Read));
    }
}
