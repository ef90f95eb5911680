//! The check before every handler: it refuses pages of other sites, identifies the caller, enforces
//! the route's policy, and counts live streams and bodies against their limits.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::{
    body::Body,
    extract::{MatchedPath, Request, State},
    http::{HeaderMap, Uri, Version, header, uri::Authority},
    middleware::Next,
    response::Response,
};
use futures::StreamExt as _;

use crate::{
    api::Api,
    identity::{IdentityMode, Scope, identify},
    listener::Connection,
    problem::ApiError,
    route::{Policy, is_live, is_probe},
    stream_limits::StreamSlot,
    tokens::{PresentedToken, presented_token},
};

/// The remote address of the connection, set by the accept loop.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) SocketAddr);

pub(crate) async fn check(
    State((api, policy)): State<(Arc<Api>, Policy)>,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    check_connection(&request)?;
    check_host(&request)?;
    check_site(&api.identity, request.headers())?;
    let Policy::Needs(scope) = policy else {
        return Ok(next.run(request).await);
    };

    let extensions = request.extensions();
    let peer = extensions.get::<Peer>().ok_or(ApiError::NotLocal)?.0.ip();
    let path = extensions.get::<MatchedPath>();
    let is_live = path.is_some_and(|path| is_live(path.as_str()));
    let token = match api.identity {
        IdentityMode::Tokens => {
            let text = presented_token(&mut request, is_live)?;
            Some(api.tokens.presented(text))
        }
        IdentityMode::Dev | IdentityMode::TrustedHeader(_) => None,
    };

    let mut caller = identify(&api.identity, peer, request.headers(), token.as_ref()).await?;
    if !caller.may(scope) {
        return Err(ApiError::Forbidden(scope));
    }

    // The tier matters only to submitted and changed tasks.
    if scope == Scope::Write && caller.tier.is_none() {
        caller.tier = api.engine.tier_of(&caller.owner).await;
    }

    // The body counts until the handler has ended.
    let token_id = token.as_ref().and_then(PresentedToken::id);
    let holder = token_id.as_ref().unwrap_or(&caller.owner);
    let _reservation = api.body_budget.try_reserve(holder, request.body())?;

    if !is_live {
        request.extensions_mut().insert(caller);
        return Ok(next.run(request).await);
    }

    let slot = api.stream_limits.try_open(&caller, token_id.as_deref())?;
    request.extensions_mut().insert(caller);
    Ok(run_live(request, next, token, slot).await)
}

/// Runs a live stream. It holds its slot until it ends, and it ends when its token is revoked or
/// expires.
async fn run_live(
    mut request: Request,
    next: Next,
    token: Option<PresentedToken>,
    slot: StreamSlot,
) -> Response {
    // The WebSocket watches the token and holds the slot itself.
    request.extensions_mut().insert(slot.clone());
    if let Some(token) = &token {
        request.extensions_mut().insert(token.clone());
    }

    let response = next.run(request).await;
    if !response.status().is_success() {
        return response;
    }

    let until_refused = async move {
        let _slot = slot;
        match token {
            Some(token) => token.until_refused().await,
            None => std::future::pending().await,
        }
    };
    let until_refused = Box::pin(until_refused);
    response.map(|body| Body::from_stream(body.into_data_stream().take_until(until_refused)))
}

/// Refuses a connection beyond the limits, unless it is a probe.
fn check_connection(request: &Request) -> Result<(), ApiError> {
    let extensions = request.extensions();
    let connection = extensions.get::<Connection>();
    let path = extensions.get::<MatchedPath>();

    let is_beyond = connection.is_some_and(|connection| connection.is_for_probes);
    let is_probe = path.is_some_and(|path| is_probe(path.as_str()));
    if is_beyond && !is_probe {
        return Err(ApiError::TooManyConnections);
    }

    Ok(())
}

/// Refuses a request that does not say whom it is for, or says it twice. HTTP/1.0 has no `Host`.
fn check_host(request: &Request) -> Result<(), ApiError> {
    let hosts = request.headers().get_all(header::HOST).iter().count();
    let is_old = request.version() == Version::HTTP_10;

    if hosts == 1 || (hosts == 0 && is_old) {
        Ok(())
    } else {
        Err(ApiError::NoHost)
    }
}

/// Refuses pages of other sites: a browser's `Origin` must be this host, or one of the gateway's.
/// In `dev` mode the `Host` must be a loopback name, which also refuses a foreign name that
/// resolves to this machine (DNS rebinding).
fn check_site(mode: &IdentityMode, headers: &HeaderMap) -> Result<(), ApiError> {
    let host = headers
        .get(header::HOST)
        .and_then(|value| value.to_str().ok());
    let authority = host.and_then(|host| host.parse::<Authority>().ok());
    if *mode == IdentityMode::Dev && !authority.as_ref().is_some_and(is_loopback) {
        return Err(ApiError::NotLocal);
    }

    let Some(origin) = headers.get(header::ORIGIN) else {
        return Ok(());
    };
    let from = origin
        .to_str()
        .ok()
        .and_then(|text| text.parse::<Uri>().ok());
    let Some(from) = from.as_ref().and_then(Uri::authority) else {
        return Err(ApiError::CrossSite);
    };

    let is_listed = match mode {
        IdentityMode::TrustedHeader(gateway) => gateway.is_listed(from),
        IdentityMode::Dev | IdentityMode::Tokens => false,
    };
    if is_listed || authority.is_some_and(|host| *from == host) {
        Ok(())
    } else {
        Err(ApiError::CrossSite)
    }
}

fn is_loopback(authority: &Authority) -> bool {
    let host = authority.host();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || bare
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::Gateway;

    fn checked(mode: IdentityMode, host: &str, origin: Option<&str>) -> Result<(), ApiError> {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().unwrap());
        }
        check_site(&mode, &headers)
    }

    const GATEWAY: IdentityMode = IdentityMode::TrustedHeader(Gateway::within(Vec::new()));

    #[test]
    fn dev_mode_accepts_only_loopback_hosts() {
        for host in [
            "localhost:7080",
            "127.0.0.1:7080",
            "127.0.0.9",
            "[::1]:7080",
        ] {
            assert!(checked(IdentityMode::Dev, host, None).is_ok(), "{host}");
        }

        for host in [
            "evil.example:7080",
            "localhost.evil.example",
            "10.0.0.1",
            "",
        ] {
            assert!(checked(IdentityMode::Dev, host, None).is_err(), "{host}");
        }

        assert!(checked(GATEWAY, "tasks.example", None).is_ok());
    }

    #[test]
    fn a_page_of_another_site_is_refused() {
        let from = |origin| checked(GATEWAY, "tasks.example:8080", Some(origin));
        assert!(from("http://tasks.example:8080").is_ok());
        for origin in [
            "http://tasks.example",
            "http://evil.example:8080",
            "null",
            "",
        ] {
            assert!(from(origin).is_err(), "{origin}");
        }

        // A gateway may call under another name than the page has.
        let names = ["tasks.example".to_owned()];
        let gateway = Gateway::within(Vec::new()).with_hosts(&names).unwrap();
        let behind = |origin| {
            let mode = IdentityMode::TrustedHeader(gateway.clone());
            checked(mode, "10.0.0.1:7080", Some(origin))
        };
        assert!(behind("https://tasks.example").is_ok());
        assert!(behind("https://evil.example").is_err());
    }
}
