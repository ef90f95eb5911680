//! Where a request shows its token: in the header, or, on live routes alone, in the address. A browser's EventSource and
//! WebSocket can set no header. What stood in the address is taken out of it before anybody else sees it.

use axum::{
    extract::Request,
    http::{HeaderMap, Uri, header, uri::PathAndQuery},
};

use crate::problem::ApiError;

/// The parameter of live routes.
const PARAMETER: &str = "access_token";

/// The token that the request shows. Two are one too many: whose request would it be?
pub(crate) fn shown(request: &mut Request, is_live: bool) -> Result<String, ApiError> {
    let in_header = bearer(request.headers())?;
    if !is_live {
        return in_header.ok_or(ApiError::NoToken);
    }
    let (in_address, rest) = split(request.uri());
    if !in_address.is_empty() {
        *request.uri_mut() = rest.ok_or(ApiError::NoToken)?;
    }
    match (in_header, &in_address[..]) {
        (Some(token), []) => Ok(token),
        (None, [token]) => Ok(token.clone()),
        _ => Err(ApiError::NoToken),
    }
}

fn bearer(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let mut given = headers.get_all(header::AUTHORIZATION).iter();
    let Some(value) = given.next() else {
        return Ok(None);
    };
    let text = value.to_str().map_err(|_| ApiError::NoToken)?;
    let (scheme, token) = text.split_once(' ').ok_or(ApiError::NoToken)?;
    if given.next().is_some() || !scheme.eq_ignore_ascii_case("bearer") {
        return Err(ApiError::NoToken);
    }
    Ok(Some(token.trim().to_owned()))
}

/// The tokens in an address, and the address without them.
fn split(uri: &Uri) -> (Vec<String>, Option<Uri>) {
    let pairs = form_urlencoded::parse(uri.query().unwrap_or("").as_bytes());
    let (tokens, others): (Vec<_>, Vec<_>) = pairs.partition(|(name, _)| name == PARAMETER);
    let query = form_urlencoded::Serializer::new(String::new())
        .extend_pairs(others)
        .finish();
    let path = if query.is_empty() {
        uri.path().to_owned()
    } else {
        format!("{}?{query}", uri.path())
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = PathAndQuery::try_from(path).ok();
    (
        tokens
            .into_iter()
            .map(|(_, token)| token.into_owned())
            .collect(),
        Uri::from_parts(parts).ok(),
    )
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn told(uri: &str, headers: &[&str], is_live: bool) -> (Option<String>, String) {
        let mut request = Request::builder().uri(uri);
        for value in headers {
            request = request.header("Authorization", *value);
        }
        let mut request = request.body(Body::empty()).unwrap();
        let token = shown(&mut request, is_live).ok();
        (token, request.uri().to_string())
    }

    #[test]
    fn a_token_stands_in_the_header_once() {
        assert_eq!(told("/x", &["Bearer t"], false).0.as_deref(), Some("t"));
        assert_eq!(told("/x", &["bearer  t"], true).0.as_deref(), Some("t"));
        for headers in [&[][..], &["t"], &["Basic t"], &["Bearer t", "Bearer t"]] {
            assert_eq!(told("/x", headers, false).0, None, "{headers:?}");
        }
    }

    #[test]
    fn a_live_route_takes_it_from_the_address_and_out_of_it() {
        let (token, rest) = told("/x?a=1&access_token=t&b=2", &[], true);
        assert_eq!((token.as_deref(), rest.as_str()), (Some("t"), "/x?a=1&b=2"));
        assert_eq!(
            told("/x?access_token=t", &[], true),
            (Some("t".to_owned()), "/x".to_owned())
        );
        assert_eq!(told("/x?access_token=t&access_token=u", &[], true).0, None);
        assert_eq!(told("/x?access_token=t", &["Bearer t"], true).0, None);
        assert_eq!(told("/x?access_token=t", &[], false).0, None);
    }
}
