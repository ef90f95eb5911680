//! The gateway of the identity mode `trusted-header`: where it calls from, under which names, and
//! with which secret.
//!
//! The address alone is not enough where browsers run on an address that the gateway also has, such
//! as loopback: a page can give its own name the address of this server (DNS rebinding) and then
//! send any header. Such a page neither has a listed name nor knows the secret.

use std::net::IpAddr;

use axum::http::{HeaderMap, header, uri::Authority};
use longhaul_domain::{Invalid, access_token::TokenDigest};
use sha2::{Digest as _, Sha256};

use crate::{network::Network, problem::ApiError};

/// The gateway's header with its secret.
const SECRET: &str = "x-gateway-secret";
/// The shortest secret, in bytes.
const SECRET_BYTES: usize = 16;

/// The gateway that has authenticated the callers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gateway {
    from: Vec<Network>,
    hosts: Vec<Authority>,
    /// Compared in constant time, and not shown.
    secret: Option<TokenDigest>,
}

impl Gateway {
    /// A gateway that calls from these networks. Calls from other addresses are refused.
    pub const fn within(networks: Vec<Network>) -> Self {
        Self {
            from: networks,
            hosts: Vec::new(),
            secret: None,
        }
    }

    /// Accepts only these names in `Host` and `Origin`: `tasks.example.com`, with a port only if it
    /// must be this one. Without names, every one is accepted.
    pub fn with_hosts(mut self, names: &[String]) -> Result<Self, Invalid> {
        for name in names {
            let host = name.parse::<Authority>();
            let host = host.ok().filter(|host| !host.as_str().contains('@'));
            let refused = || {
                let allowed =
                    "names of this API, such as tasks.example.com or tasks.example.com:8443";
                Invalid::new("hosts", format!("has {name:?}"), allowed)
            };
            self.hosts.push(host.ok_or_else(refused)?);
        }

        Ok(self)
    }

    /// Accepts only calls with this secret in `X-Gateway-Secret`.
    pub fn with_secret(mut self, secret: &str) -> Result<Self, Invalid> {
        if secret.len() < SECRET_BYTES {
            let problem = format!("has {} bytes", secret.len());
            let allowed = format!("at least {SECRET_BYTES} bytes");
            return Err(Invalid::new("gateway_secret", problem, allowed));
        }

        self.secret = Some(digest(secret.as_bytes()));
        Ok(self)
    }

    /// Refuses a call that is not the gateway's.
    pub(crate) fn check(&self, peer: IpAddr, headers: &HeaderMap) -> Result<(), ApiError> {
        if !self.from.iter().any(|network| network.contains(peer)) || !self.has_secret(headers) {
            return Err(ApiError::NotTheGateway);
        }

        let host = headers.get(header::HOST);
        let host = host.and_then(|host| host.to_str().ok()?.parse::<Authority>().ok());
        if !self.hosts.is_empty() && !host.is_some_and(|host| self.is_listed(&host)) {
            return Err(ApiError::UnknownHost);
        }

        Ok(())
    }

    /// Whether the name is one of those that were listed.
    pub(crate) fn is_listed(&self, host: &Authority) -> bool {
        let is_same = |listed: &Authority| {
            listed.host().eq_ignore_ascii_case(host.host())
                && (listed.port().is_none() || listed.port() == host.port())
        };
        self.hosts.iter().any(is_same)
    }

    fn has_secret(&self, headers: &HeaderMap) -> bool {
        let Some(secret) = &self.secret else {
            return true;
        };

        // Two headers are refused: one of them may be the caller's own.
        let mut given = headers.get_all(SECRET).iter();
        let first = given.next();
        given.next().is_none() && first.is_some_and(|text| digest(text.as_bytes()) == *secret)
    }
}

fn digest(secret: &[u8]) -> TokenDigest {
    TokenDigest(Sha256::digest(secret).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const WORD: &str = "sixteen letters!";

    fn gateway() -> Gateway {
        Gateway::within(Network::LOOPBACK.to_vec())
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(*name, value.parse().unwrap());
        }
        map
    }

    #[test]
    fn only_the_listed_names_are_accepted() {
        let names = ["tasks.example".to_owned(), "[::1]:7080".to_owned()];
        let gateway = gateway().with_hosts(&names).unwrap();
        let check = |host: &str| gateway.check(HERE, &headers(&[("host", host)]));

        for host in ["tasks.example", "Tasks.example:8443", "[::1]:7080"] {
            assert!(check(host).is_ok(), "{host}");
        }
        for host in ["evil.example", "tasks.example.evil", "[::1]", "a b", ""] {
            assert!(check(host).is_err(), "{host}");
        }
        assert!(gateway.check(HERE, &HeaderMap::new()).is_err());
    }

    #[test]
    fn only_the_secret_is_accepted_and_it_is_not_shown() {
        let gateway = gateway().with_secret(WORD).unwrap();
        let check = |pairs: &[_]| gateway.check(HERE, &headers(pairs));

        assert!(check(&[(SECRET, WORD)]).is_ok());
        for bad in [
            &[][..],
            &[(SECRET, "sixteen letters?")],
            &[(SECRET, WORD), (SECRET, WORD)],
        ] {
            assert!(matches!(check(bad), Err(ApiError::NotTheGateway)));
        }
        assert!(!format!("{gateway:?}").contains(WORD));
    }

    #[test]
    fn a_short_secret_or_an_invalid_name_is_refused() {
        assert!(gateway().with_secret("secret").is_err());
        for name in ["", "a b", "https://a", "user@a"] {
            assert!(gateway().with_hosts(&[name.to_owned()]).is_err(), "{name}");
        }
    }
}
