//! The download of a file, in pieces, so that a large file needs little memory.

use std::sync::Arc;

use axum::{
    body::{Body, Bytes},
    http::HeaderValue,
};
use longhaul_domain::{
    StoreError,
    contract::{ArtifactStore, artifact_store::ArtifactError},
};

use crate::problem::ApiError;

/// Bytes of one read. Each read opens the file again.
const PIECE: u64 = 256 * 1024;

/// The bytes from `start` up to and without `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    start: u64,
    end: u64,
}

impl Span {
    /// The bytes that a `Range` header asks for. A header that is invalid or names several ranges
    /// is ignored, as HTTP allows: the span is the whole file.
    pub(crate) fn of(range: Option<&HeaderValue>, bytes: u64) -> Self {
        let text = range.and_then(|value| value.to_str().ok());
        text.and_then(|text| Self::parse(text, bytes))
            .unwrap_or(Self {
                start: 0,
                end: bytes,
            })
    }

    fn parse(text: &str, bytes: u64) -> Option<Self> {
        let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
        let span = match (first.trim(), last.trim()) {
            ("", last) => Self {
                start: bytes.saturating_sub(last.parse().ok()?),
                end: bytes,
            },
            (first, "") => Self {
                start: first.parse().ok()?,
                end: bytes,
            },
            (first, last) => {
                let end = last.parse::<u64>().ok()?.saturating_add(1).min(bytes);
                Self {
                    start: first.parse().ok()?,
                    end,
                }
            }
        };

        (span.start < span.end).then_some(span)
    }

    pub(crate) const fn length(self) -> u64 {
        self.end - self.start
    }

    pub(crate) fn content_range(self, bytes: u64) -> String {
        format!(
            "bytes {}-{}/{bytes}",
            self.start,
            self.end.saturating_sub(1)
        )
    }
}

/// The span as a body. The first piece is read before the response starts, so that a missing file
/// is an error and not a broken download.
pub(crate) async fn pieces(
    files: Arc<dyn ArtifactStore>,
    key: String,
    span: Span,
) -> Result<Body, ApiError> {
    let first = read(&*files, &key, span.start, span.end).await?;
    let at = span.start + first.len() as u64;
    let rest = futures::stream::unfold((files, key, at), move |(files, key, at)| async move {
        if at >= span.end {
            return None;
        }

        let piece = read(&*files, &key, at, span.end).await;
        // An error ends the body early; the client notices by its length.
        let next = piece
            .as_ref()
            .map_or(span.end, |piece| at + piece.len() as u64);
        Some((piece, (files, key, next)))
    });

    let first = futures::stream::iter([Ok(first)]);
    Ok(Body::from_stream(futures::StreamExt::chain(first, rest)))
}

async fn read(files: &dyn ArtifactStore, key: &str, at: u64, end: u64) -> Result<Bytes, ApiError> {
    let length = (end - at).min(PIECE);
    let piece = files
        .read(key, at, length)
        .await
        .map_err(|error| match error {
            ArtifactError::NotFound | ArtifactError::Invalid(_) => ApiError::NoArtifact,
            ArtifactError::Unavailable(cause) => StoreError::Unavailable(cause).into(),
        })?;
    if piece.len() as u64 != length {
        return Err(
            StoreError::Unavailable("a stored file is shorter than recorded".to_owned()).into(),
        );
    }

    Ok(piece.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_valid_range_is_a_span_and_any_other_is_the_whole_file() {
        let of = |text: &'static str| {
            let span = Span::of(Some(&HeaderValue::from_static(text)), 100);
            (span.start, span.end)
        };
        assert_eq!(of("bytes=0-9"), (0, 10));
        assert_eq!(of("bytes=90-"), (90, 100));
        assert_eq!(of("bytes=-10"), (90, 100));
        assert_eq!(of("bytes=-1000"), (0, 100));
        assert_eq!(of("bytes=50-1000"), (50, 100));

        for whole in [
            "",
            "bytes",
            "bytes=",
            "bytes=5-4",
            "bytes=100-",
            "bytes=0-1,3-4",
            "lines=1-2",
            "bytes=x-y",
        ] {
            assert_eq!(of(whole), (0, 100), "{whole}");
        }

        assert_eq!(Span::of(None, 0).length(), 0);
    }
}
