//! A provider with the chat API of OpenAI: OpenAI itself, and the many servers that offer the same.
//!
//! The client is written here because a task must know what an error means: the status, and the
//! time that `Retry-After` asks for. See `docs/decisions/0019-applications-beside-the-api.md`.

use std::time::Duration;

use eventsource_stream::{EventStreamError, Eventsource as _};
use futures::{StreamExt as _, TryStreamExt as _, stream, stream::BoxStream};
use reqwest::{Client, Response, StatusCode, header, redirect::Policy};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Piece, Prompt, Provider, ProviderError, Usage};

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The wait when the provider says "too many" without a time.
const RETRY_AFTER_DEFAULT: Duration = Duration::from_secs(20);
/// The longest wait that a provider can ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3_600);
/// How many bytes of an error are read: enough for its message.
const ERROR_BYTES: usize = 16 * 1024;
/// How many characters of its message are reported.
const MESSAGE_CHARACTERS: usize = 300;
/// The most tokens of one answer: a scene of some 1,500 words.
const ANSWER_TOKENS: u32 = 2_048;
/// The most bytes of one answer on the wire, where each token takes some hundred.
const ANSWER_BYTES: usize = 4 * 1024 * 1024;

/// The address, the credentials and the model.
#[derive(Clone)]
pub struct OpenAiSettings {
    /// The URL up to and including the version: `https://api.openai.com/v1`.
    pub base_url: String,
    /// The key, if the provider needs one. It is never shown.
    pub key: Option<String>,
    /// The model.
    pub model: String,
    /// The longest time without data, before the answer and within it.
    pub silence: Duration,
}

impl std::fmt::Debug for OpenAiSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            base_url: _,
            key: _,
            model,
            silence,
        } = self;

        f.debug_struct("OpenAiSettings")
            .field("model", model)
            .field("silence", silence)
            .finish_non_exhaustive()
    }
}

/// A client for one model.
#[derive(Debug, Clone)]
pub struct OpenAi {
    client: Client,
    settings: OpenAiSettings,
    limit_key: String,
}

impl OpenAi {
    /// `Err` if the key has characters that a header cannot have, or the system has no TLS.
    pub fn new(settings: OpenAiSettings) -> Result<Self, ProviderError> {
        let invalid = |_| ProviderError::Unusable("the key has characters that cannot be sent");
        let mut headers = header::HeaderMap::new();
        if let Some(key) = &settings.key {
            let authorization = header::HeaderValue::from_str(&format!("Bearer {key}"));
            let mut authorization = authorization.map_err(invalid)?;
            authorization.set_sensitive(true);
            headers.insert(header::AUTHORIZATION, authorization);
        }

        let client = Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(Policy::none())
            .default_headers(headers)
            .build();
        let client = client.map_err(|error| ProviderError::Broken(reason(error)))?;
        let limit_key = format!("openai/{}", settings.model);

        Ok(Self {
            client,
            settings,
            limit_key,
        })
    }

    async fn ask(
        self,
        prompt: Prompt,
    ) -> Result<BoxStream<'static, Result<Piece, ProviderError>>, ProviderError> {
        let base_url = self.settings.base_url.trim_end_matches('/');
        let url = format!("{base_url}/chat/completions");
        let body = request(&self.settings.model, &prompt).to_string();
        let sent = self
            .client
            .post(url)
            .header(header::CONTENT_TYPE, "application/json")
            .body(body)
            .send();

        let silence = self.settings.silence;
        let answered = tokio::time::timeout(silence, sent)
            .await
            .map_err(|_| ProviderError::TimedOut(silence))?;
        let response = answered.map_err(|error| ProviderError::Broken(reason(error)))?;
        if !response.status().is_success() {
            return Err(error_of(response, silence, self.settings.key.as_deref()).await);
        }

        Ok(pieces(response, silence))
    }
}

impl Provider for OpenAi {
    fn key(&self) -> &str {
        &self.limit_key
    }

    fn write(&self, prompt: Prompt) -> BoxStream<'static, Result<Piece, ProviderError>> {
        stream::once(self.clone().ask(prompt)).try_flatten().boxed()
    }
}

fn request(model: &str, prompt: &Prompt) -> Value {
    let instruction = match prompt {
        Prompt::Summarize(_) => {
            "Summarise the scene in at most three sentences. Answer with the summary alone."
        }
        Prompt::Write(_) => {
            "Write the scene that this is the summary of, in about 200 words. \
             Answer with the scene alone."
        }
    };

    json!({
        "model": model,
        "stream": true,
        "stream_options": { "include_usage": true },
        "max_tokens": ANSWER_TOKENS,
        "messages": [
            { "role": "system", "content": instruction },
            { "role": "user", "content": prompt.text() },
        ],
    })
}

/// The relevant fields of an event of the stream.
#[derive(Debug, Deserialize)]
struct Chunk {
    #[serde(default)]
    choices: Vec<Choice>,
    usage: Option<ReportedUsage>,
    error: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct Choice {
    #[serde(default)]
    delta: Delta,
}

#[derive(Debug, Default, Deserialize)]
struct Delta {
    content: Option<String>,
}

#[derive(Debug, Deserialize)]
struct ReportedUsage {
    #[serde(default)]
    prompt_tokens: u64,
    #[serde(default)]
    completion_tokens: u64,
}

/// The pieces of an answer. A stream that ends without `[DONE]` was cut off.
fn pieces(
    response: Response,
    silence: Duration,
) -> BoxStream<'static, Result<Piece, ProviderError>> {
    let mut received = 0;
    let bytes = response.bytes_stream().map(move |chunk| {
        let chunk = chunk.map_err(|error| ProviderError::Broken(reason(error)))?;
        received += chunk.len();
        if received > ANSWER_BYTES {
            let reason = format!("it has more than {ANSWER_BYTES} bytes");
            return Err(ProviderError::Unreadable(reason));
        }

        Ok(chunk)
    });

    let events = Box::pin(bytes.eventsource());
    let read = stream::try_unfold(Some(events), move |events| async move {
        let Some(mut events) = events else {
            return Ok(None);
        };
        let next = tokio::time::timeout(silence, events.next())
            .await
            .map_err(|_| ProviderError::TimedOut(silence))?;
        match next {
            None => Err(ProviderError::Broken(
                "it ended in the middle of the answer".to_owned(),
            )),
            Some(Err(EventStreamError::Transport(error))) => Err(error),
            Some(Err(error)) => Err(ProviderError::Unreadable(error.to_string())),
            Some(Ok(event)) if event.data.trim() == "[DONE]" => Ok(Some((Vec::new(), None))),
            Some(Ok(event)) => Ok(Some((pieces_of(&event.data)?, Some(events)))),
        }
    });

    read.map_ok(|pieces| stream::iter(pieces.into_iter().map(Ok)))
        .try_flatten()
        .boxed()
}

fn pieces_of(data: &str) -> Result<Vec<Piece>, ProviderError> {
    let chunk: Chunk =
        serde_json::from_str(data).map_err(|error| ProviderError::Unreadable(error.to_string()))?;
    if let Some(error) = chunk.error {
        // An error within the answer has no status. It is the provider that has failed.
        return Err(ProviderError::Unavailable {
            status: 500,
            message: message(&json!({ "error": error }).to_string()),
        });
    }

    let texts = chunk
        .choices
        .into_iter()
        .filter_map(|choice| choice.delta.content)
        .filter(|text| !text.is_empty());

    let usage = chunk.usage.map(|reported| Usage {
        prompt_tokens: reported.prompt_tokens,
        completion_tokens: reported.completion_tokens,
    });

    let pieces = texts.map(Piece::Text).chain(usage.map(Piece::Usage));
    Ok(pieces.collect())
}

/// The error for a response whose status is not a success.
async fn error_of(mut response: Response, silence: Duration, key: Option<&str>) -> ProviderError {
    let status = response.status();
    let retry_after = retry_after(&response);
    let body = error_body(&mut response, silence).await;

    // Some providers repeat the key in their message.
    let message = match key {
        Some(key) if !key.is_empty() => message(&body.replace(key, "…")),
        Some(_) | None => message(&body),
    };

    let code = status.as_u16();
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => ProviderError::InvalidKey {
            status: code,
            message,
        },
        StatusCode::TOO_MANY_REQUESTS => ProviderError::TooManyRequests {
            retry_after,
            message,
        },
        status if status == StatusCode::REQUEST_TIMEOUT || status.is_server_error() => {
            ProviderError::Unavailable {
                status: code,
                message,
            }
        }
        _ => ProviderError::Refused {
            status: code,
            message,
        },
    }
}

/// The beginning of the body, as far as it arrives in time. The status is enough without it.
async fn error_body(response: &mut Response, silence: Duration) -> String {
    let mut body = Vec::new();
    let read = async {
        while let Ok(Some(more)) = response.chunk().await {
            body.extend_from_slice(&more);
            if body.len() >= ERROR_BYTES {
                break;
            }
        }
    };

    let _ = tokio::time::timeout(silence, read).await;
    String::from_utf8_lossy(&body).into_owned()
}

/// How long the provider asks callers to wait: `Retry-After` in seconds or as a date. Some
/// providers send milliseconds in a header of their own.
fn retry_after(response: &Response) -> Duration {
    let text = |name: &str| response.headers().get(name)?.to_str().ok().map(str::trim);
    let number = |name: &str| text(name).and_then(|text| text.parse::<f64>().ok());
    let date = |name: &str| text(name).and_then(|text| jiff::fmt::rfc2822::parse(text).ok());
    let seconds = number("retry-after-ms")
        .map(|ms| ms / 1_000.0)
        .or_else(|| number("retry-after"));
    let asked = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());

    // Both dates are the provider's, so its clock need not agree with this one.
    let until_date = || {
        let until = date("retry-after")?.timestamp();
        let now = date("date")?.timestamp();
        Duration::try_from(until.duration_since(now)).ok()
    };

    let asked = asked.or_else(until_date);
    asked.unwrap_or(RETRY_AFTER_DEFAULT).min(RETRY_AFTER_MAX)
}

/// The provider's message if the body has one, else the body.
fn message(body: &str) -> String {
    let json = serde_json::from_str::<Value>(body).unwrap_or_default();
    let message = json["error"]["message"].as_str().unwrap_or(body);
    message.chars().take(MESSAGE_CHARACTERS).collect()
}

/// Why there was no answer. The URL is left out because it may contain a secret.
fn reason(error: reqwest::Error) -> String {
    let error = error.without_url();
    let causes =
        std::iter::successors(std::error::Error::source(&error), |cause| (*cause).source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
