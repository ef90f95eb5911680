//! Who calls, and what they may do.
//!
//! There is one way in: [`identify`]. Each mode is a variant and an arm there; tokens will be another.

use std::net::IpAddr;

use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, request::Parts},
};
use longhaul_domain::{bounds, contract::store::Access};

use crate::problem::ApiError;

/// The gateway's word for whose request this is.
const USER: &str = "x-user-id";
/// The gateway's word for what they may do, separated by spaces or commas.
const SCOPES: &str = "x-user-scopes";
/// Who calls in `dev` when nothing is said.
const DEFAULT_USER: &str = "default";

/// How callers are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdentityMode {
    /// Programs of this machine are trusted to be who they say, and may do everything.
    Dev,
    /// A gateway in front has checked who calls and says so in headers. Nobody else may reach this server.
    TrustedHeader,
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
    const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Operate, Self::Admin];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "tasks:read",
            Self::Write => "tasks:write",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }
}

/// A caller who is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    pub(crate) owner: String,
    scopes: Vec<Scope>,
}

impl Caller {
    /// Whose name the call is made in; what it makes is theirs.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// Whether the caller has the scope.
    pub fn may(&self, scope: Scope) -> bool {
        self.scopes.contains(&scope) || self.scopes.contains(&Scope::Admin)
    }

    /// Whose tasks this caller sees and changes.
    pub fn access(&self) -> Access {
        if self.scopes.contains(&Scope::Admin) { Access::All } else { Access::Owner(self.owner.clone()) }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        // The guard has put it there; a public route has none.
        parts.extensions.get().cloned().ok_or(ApiError::Unidentified)
    }
}

/// Who the request is from.
pub(crate) fn identify(mode: IdentityMode, peer: IpAddr, headers: &HeaderMap) -> Result<Caller, ApiError> {
    match mode {
        IdentityMode::Dev => {
            if !peer.to_canonical().is_loopback() {
                return Err(ApiError::NotLocal);
            }
            let owner = user(headers)?.unwrap_or(DEFAULT_USER).to_owned();
            let scopes = scopes(headers).unwrap_or(vec![Scope::Read, Scope::Write, Scope::Operate]);
            Ok(Caller { owner, scopes })
        }
        IdentityMode::TrustedHeader => {
            let owner = user(headers)?.ok_or(ApiError::Unidentified)?.to_owned();
            let scopes = scopes(headers).unwrap_or(vec![Scope::Read, Scope::Write]);
            Ok(Caller { owner, scopes })
        }
    }
}

/// The user that the header names. Two such headers may be one of the gateway's and one of the caller's: refused.
fn user(headers: &HeaderMap) -> Result<Option<&str>, ApiError> {
    let mut given = headers.get_all(USER).iter();
    let Some(value) = given.next() else { return Ok(None) };
    let text = std::str::from_utf8(value.as_bytes()).map_err(|_| ApiError::Unidentified)?;
    if given.next().is_some() || bounds::check_name("userId", text).is_err() {
        return Err(ApiError::Unidentified);
    }
    Ok(Some(text))
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
    Some(Scope::ALL.into_iter().filter(|scope| names.contains(&scope.as_str())).collect())
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(*name, value.parse().unwrap());
        }
        map
    }

    #[test]
    fn dev_trusts_this_machine_and_nobody_else() {
        let caller = identify(IdentityMode::Dev, HERE, &headers(&[])).unwrap();
        assert_eq!(caller.access(), Access::Owner("default".to_owned()));
        assert!([Scope::Read, Scope::Write, Scope::Operate].iter().all(|scope| caller.may(*scope)));
        let mapped = IpAddr::V6(Ipv4Addr::LOCALHOST.to_ipv6_mapped());
        assert!(identify(IdentityMode::Dev, mapped, &headers(&[])).is_ok());
        let elsewhere = [IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
        assert!(elsewhere.iter().all(|peer| identify(IdentityMode::Dev, *peer, &headers(&[])).is_err()));
    }

    #[test]
    fn a_gateway_must_say_who_calls() {
        let known = |pairs: &[_]| identify(IdentityMode::TrustedHeader, HERE, &headers(pairs));
        assert!(known(&[]).is_err());
        assert!(known(&[("x-user-id", "")]).is_err());
        assert!(known(&[("x-user-id", "u-1"), ("x-user-id", "u-2")]).is_err());
        let caller = known(&[("x-user-id", "u-1")]).unwrap();
        assert!(caller.may(Scope::Write) && !caller.may(Scope::Operate));
    }

    #[test]
    fn only_a_caller_who_is_called_an_administrator_sees_all() {
        let known = |scopes| identify(IdentityMode::Dev, HERE, &headers(&[("x-user-scopes", scopes)])).unwrap();
        assert_eq!(known("tasks:read, admin").access(), Access::All);
        assert!(!known("tasks:read").may(Scope::Write));
        assert!(!known("everything").may(Scope::Read));
    }
}
