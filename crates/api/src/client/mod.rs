//! A client of the HTTP API.
//!
//! It never repeats a call by itself. Each answer holds the server's own text beside the parsed
//! value, so that a program can pass the text on unchanged.

mod calls;
mod error;
mod events;

use std::net::IpAddr;
use std::time::Duration;

use reqwest::{Method, RequestBuilder, Response, Url, header::HeaderValue};
use serde::de::DeserializeOwned;

pub use calls::{Answered, Filters};
pub use error::ClientError;
pub use events::{About, Events, Update};
pub use longhaul_domain::{Json, NodeId, Status, TaskId, event::EventKind};

use crate::problem::Problem;

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(5);
/// The longest pause within a response. Live streams send a heartbeat every 15 s.
const SILENCE: Duration = Duration::from_secs(45);
/// How long a response that is not a stream may take.
const ANSWER: Duration = Duration::from_secs(60);
/// The largest response in bytes: a page has at most 200 tasks, each with a progress document of at
/// most 256 KiB.
const ANSWER_BYTES: usize = 64 * 1024 * 1024;

/// The identity of the caller.
#[derive(Clone, Default)]
pub struct Identity {
    /// Sent as `Authorization: Bearer …`.
    pub token: Option<String>,
    /// Sent as `X-User-Id`, which only `dev` mode and gateways trust.
    pub user: Option<String>,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity")
            .field("has_token", &self.token.is_some())
            .field("user", &self.user)
            .finish()
    }
}

/// Whether the URL is on this machine.
fn is_here(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost"
        || host
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

impl Identity {
    /// Refuses a value that no header can carry, with its name: the request could not say which.
    fn check(&self) -> Result<(), ClientError> {
        for (name, value) in [("the token", &self.token), ("the user", &self.user)] {
            if let Some(value) = value {
                header(name, value)?;
            }
        }
        Ok(())
    }
}

/// A header value. An invalid one is named and not shown, because it may be secret.
fn header(name: &str, text: &str) -> Result<HeaderValue, ClientError> {
    let refuse =
        |_| ClientError::Unsendable(format!("{name} has characters that a header cannot carry"));
    HeaderValue::from_str(text).map_err(refuse)
}

/// A client of one server. Clones share their connections.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    base: Url,
    identity: Identity,
}

/// The text of a response, and its value.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer<T> {
    pub text: String,
    pub value: T,
}

impl Client {
    /// A client of the server at this URL. It sends nothing yet.
    pub fn new(url: &str, identity: Identity) -> Result<Self, ClientError> {
        let refuse = |problem: String| ClientError::Url {
            url: url.to_owned(),
            problem,
        };
        let mut base = Url::parse(url).map_err(|error| refuse(error.to_string()))?;
        if !matches!(base.scheme(), "http" | "https") || base.host_str().is_none() {
            return Err(refuse(
                "it must start with http:// or https:// and name a host".to_owned(),
            ));
        }

        // A password in the URL would be shown wherever the URL is.
        if !base.username().is_empty() || base.password().is_some() {
            let _ = (base.set_username(""), base.set_password(None));
            let problem =
                "it has a user or a password, which Longhaul does not use; use a token instead"
                    .to_owned();
            return Err(ClientError::Url {
                url: base.to_string(),
                problem,
            });
        }

        identity.check()?;
        let mut http = reqwest::Client::builder();
        // A proxy does not reach this machine.
        if is_here(&base) {
            http = http.no_proxy();
        }
        let http = http
            .connect_timeout(CONNECT)
            .read_timeout(SILENCE)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("longhaul/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| refuse(error::causes(&error)))?;

        Ok(Self {
            http,
            base,
            identity,
        })
    }

    /// The server's address as it was given.
    pub fn url(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// A request to the path that the segments make, each of them escaped.
    fn request(
        &self,
        method: Method,
        segments: &[&str],
        query: &[(&str, String)],
    ) -> RequestBuilder {
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().push("api").extend(segments);
        }

        if !query.is_empty() {
            let pairs = form_urlencoded::Serializer::new(String::new())
                .extend_pairs(query)
                .finish();
            url.set_query(Some(&pairs));
        }

        let mut request = self.http.request(method, url);
        if let Some(token) = &self.identity.token {
            request = request.bearer_auth(token);
        }
        if let Some(user) = &self.identity.user {
            request = request.header("x-user-id", user);
        }

        request
    }

    async fn send<T: DeserializeOwned>(
        &self,
        request: RequestBuilder,
    ) -> Result<Answer<T>, ClientError> {
        let text = self.text(self.open(request.timeout(ANSWER)).await?).await?;
        let value = serde_json::from_str(&text)
            .map_err(|error| ClientError::Unreadable(error.to_string()))?;
        Ok(Answer { text, value })
    }

    /// For responses without a body.
    async fn send_and_forget(&self, request: RequestBuilder) -> Result<(), ClientError> {
        self.open(request.timeout(ANSWER)).await.map(drop)
    }

    /// Sends, and turns what is not a success into an error.
    async fn open(&self, request: RequestBuilder) -> Result<Response, ClientError> {
        let response = request.send().await.map_err(|error| self.lost(&error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }

        let text = self.text(response).await.unwrap_or_default();
        Err(match serde_json::from_str::<Problem>(&text) {
            Ok(problem) => ClientError::Refused(Box::new(problem)),
            Err(_) => ClientError::Strange {
                url: self.url().to_owned(),
                status: status.as_u16(),
            },
        })
    }

    async fn text(&self, mut response: Response) -> Result<String, ClientError> {
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.lost(&error))? {
            if bytes.len() + chunk.len() > ANSWER_BYTES {
                return Err(ClientError::Unreadable(format!(
                    "it has more than {ANSWER_BYTES} bytes"
                )));
            }
            bytes.extend_from_slice(&chunk);
        }

        String::from_utf8(bytes).map_err(|error| ClientError::Unreadable(error.to_string()))
    }

    fn lost(&self, error: &reqwest::Error) -> ClientError {
        let url = self.url().to_owned();
        let problem = error::causes(error);
        if error.is_connect() {
            ClientError::Unreachable { url, problem }
        } else if error.is_builder() {
            ClientError::Unsendable(problem)
        } else {
            ClientError::Lost { url, problem }
        }
    }
}
