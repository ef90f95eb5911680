//! A provider that speaks the chat protocol of OpenAI: OpenAI itself, and the many servers that offer the same.
//!
//! It is a small client of its own because a task has to know what a refusal means: the status, and how long
//! `Retry-After` asks for. See `docs/decisions/0019-applications-beside-the-api.md`.

use std::time::Duration;

use eventsource_stream::{EventStreamError, Eventsource as _};
use futures::{StreamExt as _, TryStreamExt as _, stream, stream::BoxStream};
use reqwest::{Client, Response, StatusCode, header, redirect::Policy};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Piece, Prompt, Provider, ProviderError, Usage};

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// What is waited for when the provider says "too many" and not for how long.
const RETRY_AFTER: Duration = Duration::from_secs(20);
/// The longest wait that a provider can ask for.
const RETRY_AFTER_MOST: Duration = Duration::from_secs(3_600);
/// How much of a refusal is read, in bytes: enough for its reason.
const REFUSAL_BYTES: usize = 16 * 1024;
/// How much of a refusal is told, in characters.
const MESSAGE_CHARACTERS: usize = 300;
/// The most that one answer may have, in tokens: a scene of some 1,500 words.
const ANSWER_TOKENS: u32 = 2_048;
/// The same as it comes over the wire, in bytes: each token is wrapped in some hundreds.
const ANSWER_BYTES: usize = 4 * 1024 * 1024;

/// Where to ask, as whom, and for what.
#[derive(Clone)]
pub struct OpenAiSettings {
    /// Up to and with the version: `https://api.openai.com/v1`.
    pub base_url: String,
    /// The key, if one is needed. It is sent, and never shown.
    pub key: Option<String>,
    /// The model.
    pub model: String,
    /// How long the provider may keep silent, before the answer and within it.
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

/// A client of one model.
#[derive(Debug, Clone)]
pub struct OpenAi {
    client: Client,
    settings: OpenAiSettings,
    limit_key: String,
}

impl OpenAi {
    /// A client. `Err` when the key cannot be sent at all, or the system has no TLS.
    pub fn new(settings: OpenAiSettings) -> Result<Self, ProviderError> {
        let unfit = |_| ProviderError::Unusable("the key has characters that cannot be sent");
        let mut headers = header::HeaderMap::new();
        if let Some(key) = &settings.key {
            let mut authorization =
                header::HeaderValue::from_str(&format!("Bearer {key}")).map_err(unfit)?;
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
        let url = format!(
            "{}/chat/completions",
            self.settings.base_url.trim_end_matches('/')
        );
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
            return Err(refusal(response, silence, self.settings.key.as_deref()).await);
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
    let task = match prompt {
        Prompt::Summarize(_) => {
            "Summarise the scene in at most three sentences. Answer with the summary alone."
        }
        Prompt::Tell(_) => {
            "Write the scene that this is the summary of, in about 200 words. Answer with the scene alone."
        }
    };
    json!({
        "model": model,
        "stream": true,
        "stream_options": { "include_usage": true },
        "max_tokens": ANSWER_TOKENS,
        "messages": [{ "role": "system", "content": task }, { "role": "user", "content": prompt.text() }],
    })
}

/// An event of the stream, as far as it is of interest.
#[derive(Debug, Deserialize)]
struct Chunk {
    #[serde(default)]
    choices: Vec<Choice>,
    usage: Option<Cost>,
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
struct Cost {
    #[serde(default)]
    prompt_tokens: u64,
    #[serde(default)]
    completion_tokens: u64,
}

/// The pieces of an answer. A stream that ends without `[DONE]` was cut.
fn pieces(
    response: Response,
    silence: Duration,
) -> BoxStream<'static, Result<Piece, ProviderError>> {
    let mut received = 0;
    let bytes = response.bytes_stream().map(move |chunk| {
        let chunk = chunk.map_err(|error| ProviderError::Broken(reason(error)))?;
        received += chunk.len();
        let too_much =
            || ProviderError::Unreadable(format!("it has more than {ANSWER_BYTES} bytes"));
        if received > ANSWER_BYTES {
            Err(too_much())
        } else {
            Ok(chunk)
        }
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
            Some(Ok(event)) => Ok(Some((parts(&event.data)?, Some(events)))),
        }
    });
    read.map_ok(|parts| stream::iter(parts.into_iter().map(Ok)))
        .try_flatten()
        .boxed()
}

fn parts(data: &str) -> Result<Vec<Piece>, ProviderError> {
    let chunk: Chunk =
        serde_json::from_str(data).map_err(|error| ProviderError::Unreadable(error.to_string()))?;
    if let Some(error) = chunk.error {
        // A failure after the answer began has no status: it is the provider's side that gave up.
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
    let cost = chunk.usage.map(
        |Cost {
             prompt_tokens,
             completion_tokens,
         }| Usage {
            prompt_tokens,
            completion_tokens,
        },
    );
    Ok(texts
        .map(Piece::Text)
        .chain(cost.map(Piece::Usage))
        .collect())
}

/// What a status other than success means.
async fn refusal(mut response: Response, silence: Duration, key: Option<&str>) -> ProviderError {
    let (status, retry_after) = (response.status(), retry_after(&response));
    let mut body = Vec::new();
    let reading = async {
        while let Ok(Some(more)) = response.chunk().await {
            body.extend_from_slice(&more);
            if body.len() >= REFUSAL_BYTES {
                break;
            }
        }
    };
    // Without its body a refusal still has a status.
    let _ = tokio::time::timeout(silence, reading).await;
    let body = String::from_utf8_lossy(&body);
    // Some providers repeat what they were sent.
    let body = key
        .filter(|key| !key.is_empty())
        .map_or(body.to_string(), |key| body.replace(key, "…"));
    let (message, code) = (message(&body), status.as_u16());
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => ProviderError::InvalidKey {
            status: code,
            message,
        },
        StatusCode::TOO_MANY_REQUESTS => ProviderError::TooManyRequests {
            retry_after,
            message,
        },
        StatusCode::REQUEST_TIMEOUT => ProviderError::Unavailable {
            status: code,
            message,
        },
        other if other.is_server_error() => ProviderError::Unavailable {
            status: code,
            message,
        },
        _ => ProviderError::Refused {
            status: code,
            message,
        },
    }
}

/// How long the provider asks to be left alone: `Retry-After` in seconds or as a moment; some say it in milliseconds in a
/// header of their own.
fn retry_after(response: &Response) -> Duration {
    let text = |name: &str| response.headers().get(name)?.to_str().ok().map(str::trim);
    let number = |name: &str| text(name).and_then(|text| text.parse::<f64>().ok());
    let moment = |name: &str| text(name).and_then(|text| jiff::fmt::rfc2822::parse(text).ok());
    let seconds = number("retry-after-ms")
        .map(|ms| ms / 1_000.0)
        .or_else(|| number("retry-after"));
    let asked = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    // A moment is the provider's own, and so is the time that its answer was made at: clocks need not agree.
    let until = || {
        Some(
            moment("retry-after")?
                .timestamp()
                .duration_since(moment("date")?.timestamp()),
        )
    };
    let asked = asked.or_else(|| Duration::try_from(until()?).ok());
    asked.unwrap_or(RETRY_AFTER).min(RETRY_AFTER_MOST)
}

/// The provider's own words, as far as they are for people.
fn message(body: &str) -> String {
    let told = serde_json::from_str::<Value>(body).ok();
    let told = told
        .as_ref()
        .and_then(|body| body["error"]["message"].as_str())
        .unwrap_or(body);
    told.chars().take(MESSAGE_CHARACTERS).collect()
}

/// Why there was no answer. An address may hold a secret, so it is left out.
fn reason(error: reqwest::Error) -> String {
    let error = error.without_url();
    let causes =
        std::iter::successors(std::error::Error::source(&error), |cause| (*cause).source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
