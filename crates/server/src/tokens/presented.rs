//! Where a request presents its token: in the `Authorization` header, or on live routes in the
//! query string, because a browser's EventSource and WebSocket can set no header. A token in the
//! query string is removed before any other code sees the request.

use axum::{
    extract::Request,
    http::{HeaderMap, Uri, header, uri::PathAndQuery},
};

use crate::problem::ApiError;

/// The query parameter of live routes.
const PARAMETER: &str = "access_token";

/// The token of the request. Two tokens are refused: they could belong to two callers.
pub(crate) fn presented_token(request: &mut Request, is_live: bool) -> Result<String, ApiError> {
    let in_header = bearer(request.headers())?;
    if !is_live {
        return in_header.ok_or(ApiError::NoToken);
    }

    let (in_query, without_token) = split(request.uri());
    if !in_query.is_empty() {
        *request.uri_mut() = without_token.ok_or(ApiError::NoToken)?;
    }

    match (in_header, &in_query[..]) {
        (Some(token), []) => Ok(token),
        (None, [token]) => Ok(token.clone()),
        _ => Err(ApiError::NoToken),
    }
}

fn bearer(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };

    let text = value.to_str().map_err(|_| ApiError::NoToken)?;
    let (scheme, token) = text.split_once(' ').ok_or(ApiError::NoToken)?;
    if values.next().is_some() || !scheme.eq_ignore_ascii_case("bearer") {
        return Err(ApiError::NoToken);
    }

    Ok(Some(token.trim().to_owned()))
}

/// The tokens in a URI, and the URI without them.
fn split(uri: &Uri) -> (Vec<String>, Option<Uri>) {
    let pairs = form_urlencoded::parse(uri.query().unwrap_or("").as_bytes());
    let (tokens, others): (Vec<_>, Vec<_>) = pairs.partition(|(name, _)| name == PARAMETER);
    let tokens = tokens.into_iter().map(|(_, token)| token.into_owned());

    let query = form_urlencoded::Serializer::new(String::new())
        .extend_pairs(others)
        .finish();
    let path = if query.is_empty() {
        uri.path().to_owned()
    } else {
        format!("{}?{query}", uri.path())
    };

    let mut components = uri.clone().into_parts();
    components.path_and_query = PathAndQuery::try_from(path).ok();
    (tokens.collect(), Uri::from_parts(components).ok())
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn read(uri: &str, headers: &[&str], is_live: bool) -> (Option<String>, String) {
        let mut request = Request::builder().uri(uri);
        for value in headers {
            request = request.header("Authorization", *value);
        }

        let mut request = request.body(Body::empty()).unwrap();
        let token = presented_token(&mut request, is_live).ok();
        (token, request.uri().to_string())
    }

    #[test]
    fn a_header_presents_exactly_one_bearer_token() {
        assert_eq!(read("/x", &["Bearer t"], false).0.as_deref(), Some("t"));
        assert_eq!(read("/x", &["bearer  t"], true).0.as_deref(), Some("t"));
        for headers in [&[][..], &["t"], &["Basic t"], &["Bearer t", "Bearer t"]] {
            assert_eq!(read("/x", headers, false).0, None, "{headers:?}");
        }
    }

    #[test]
    fn a_live_route_removes_the_token_from_the_query_string() {
        let (token, rest) = read("/x?a=1&access_token=t&b=2", &[], true);
        assert_eq!((token.as_deref(), rest.as_str()), (Some("t"), "/x?a=1&b=2"));
        assert_eq!(
            read("/x?access_token=t", &[], true),
            (Some("t".to_owned()), "/x".to_owned())
        );

        assert_eq!(read("/x?access_token=t&access_token=u", &[], true).0, None);
        assert_eq!(read("/x?access_token=t", &["Bearer t"], true).0, None);
        assert_eq!(read("/x?access_token=t", &[], false).0, None);
    }
}
