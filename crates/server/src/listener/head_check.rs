//! Checks the head of requests before the HTTP parser, and writes the answer to what the parser
//! refuses.
//!
//! The parser accepts lines that end with a line feed alone. Other programs on the way may read
//! such a head differently, which lets a request hide in another one. And the parser answers a head
//! that it refuses with an empty body; the client gets a problem document instead.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use axum::{
    body::{Body, Bytes, HttpBody},
    http::StatusCode,
    response::Response,
};
use hyper::body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{observe::new_request_id, problem::ApiError};

/// Whether a request of the connection is being answered. Then its bytes are not those of a head.
/// One task polls the connection and its requests, so that the flag is never out of step with them.
#[derive(Debug, Clone, Default)]
pub(super) struct IsAnswering(Arc<AtomicBool>);

impl IsAnswering {
    /// A request has arrived.
    pub(super) fn begin(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// The request is answered when the body of its response has been sent. After an upgrade the
    /// connection has no heads any more.
    pub(super) fn until_sent(self, response: Response) -> Response {
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return response;
        }
        response.map(|inner| {
            Body::new(AnswerBody {
                inner,
                is_answering: self,
            })
        })
    }

    fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The body of a response. Dropping it ends the answer.
struct AnswerBody {
    inner: Body,
    is_answering: IsAnswering,
}

impl HttpBody for AnswerBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for AnswerBody {
    fn drop(&mut self) {
        self.is_answering.0.store(false, Ordering::Relaxed);
    }
}

pub(super) struct HeadCheck<S> {
    inner: S,
    is_answering: IsAnswering,
    head: HeadScan,
    /// An answer that replaces the parser's, as far as it is not written.
    answer: Vec<u8>,
}

impl<S> HeadCheck<S> {
    pub(super) fn new(inner: S, is_answering: IsAnswering) -> Self {
        Self {
            inner,
            is_answering,
            head: HeadScan::default(),
            answer: Vec::new(),
        }
    }

    /// Replaces the parser's answer. Whether it did.
    fn replace(&mut self, written: &[u8]) -> bool {
        if self.is_answering.get() {
            return false;
        }

        match answer_instead_of(written) {
            Some(answer) => {
                self.answer.extend(answer);
                true
            }
            None => false,
        }
    }
}

impl<S: AsyncWrite + Unpin> HeadCheck<S> {
    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.answer.is_empty() {
            let written = ready!(Pin::new(&mut self.inner).poll_write(cx, &self.answer))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.answer.drain(..written);
        }

        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for HeadCheck<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buf))?;

        let is_answering = self.is_answering.get();
        let bytes = buf.filled_mut().get_mut(before..).unwrap_or_default();
        self.head.scan(bytes, is_answering);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for HeadCheck<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_answer(cx))?;
        if self.replace(buf) {
            return Poll::Ready(Ok(buf.len()));
        }
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_answer(cx))?;
        if let [only] = bufs
            && self.replace(only)
        {
            return Poll::Ready(Ok(only.len()));
        }
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_answer(cx))?;
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_answer(cx))?;
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// Looks for line feeds without a carriage return in heads.
#[derive(Debug, Default)]
struct HeadScan {
    last: u8,
    /// Bytes of the line so far, without its end.
    line_bytes: usize,
    has_request_line: bool,
    /// Whether a request was being answered when bytes arrived last.
    was_answering: bool,
    /// Whether these bytes are the rest of something that arrived during an answer.
    is_rest: bool,
}

impl HeadScan {
    /// Makes a head with a bare line feed one that the parser refuses. What follows a head in the
    /// same bytes is its body.
    fn scan(&mut self, bytes: &mut [u8], is_answering: bool) {
        if is_answering {
            *self = Self {
                was_answering: true,
                ..Self::default()
            };
            return;
        }

        // A client may send its next request before the answer to this one. Where a part of it came
        // during the answer, the rest may be a body, and a body must not be changed.
        if std::mem::take(&mut self.was_answering) {
            self.is_rest = !bytes.first().is_some_and(u8::is_ascii_uppercase);
        }
        if self.is_rest {
            return;
        }

        for byte in bytes {
            let last = std::mem::replace(&mut self.last, *byte);
            match *byte {
                b'\n' if last != b'\r' => *byte = 0,
                b'\n' if self.line_bytes == 0 && self.has_request_line => {
                    *self = Self::default();
                    return;
                }
                b'\n' => {
                    self.has_request_line |= self.line_bytes > 0;
                    self.line_bytes = 0;
                }
                b'\r' => {}
                _ => self.line_bytes += 1,
            }
        }
    }
}

/// The statuses with which the parser refuses a head, and the problem.
const REFUSALS: [(&str, u16, &str); 2] = [
    ("HTTP/1.1 400 ", 400, "is not HTTP/1.1"),
    (
        "HTTP/1.1 431 ",
        431,
        "has too many headers, or too large ones",
    ),
];

/// The answer in place of what the parser writes: a head with nothing but these.
fn answer_instead_of(written: &[u8]) -> Option<Vec<u8>> {
    let head = std::str::from_utf8(written)
        .ok()?
        .strip_suffix("\r\n\r\n")?;
    let (_, status, problem) = REFUSALS
        .into_iter()
        .find(|(start, _, _)| head.starts_with(start))?;
    let is_the_parsers = |line: &str| {
        ["connection: close", "content-length: 0"].contains(&line) || line.starts_with("date: ")
    };
    if !head.lines().skip(1).all(is_the_parsers) {
        return None;
    }

    let problem = ApiError::NotHttp { status, problem }.problem();
    let body = serde_json::to_vec(&problem).ok()?;
    let length = body.len();
    let request_id = new_request_id();
    let line = head.lines().next()?;
    let head = format!(
        "{line}\r\ncontent-type: application/problem+json\r\ncontent-length: {length}\r\n\
         connection: close\r\nx-request-id: {request_id}\r\n\r\n"
    );
    tracing::debug!(
        request_id,
        status,
        "listener: request is not valid HTTP; answering with a problem and closing the connection"
    );
    Some([head.into_bytes(), body].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scanned(parts: &[&str]) -> String {
        let mut scan = HeadScan::default();
        let mut all = Vec::new();
        for part in parts {
            let mut bytes = part.as_bytes().to_vec();
            scan.scan(&mut bytes, false);
            all.extend(bytes);
        }
        String::from_utf8(all).unwrap()
    }

    #[test]
    fn a_bare_line_feed_is_made_invalid_in_a_head_and_left_in_a_body() {
        let good = "\r\nPOST / HTTP/1.1\r\nHost: a\r\n\r\n{\n}\n";
        assert_eq!(scanned(&[good]), good);
        let halves = ["POST / HTTP/1.1\r", "\nHost: a\r\n\r", "\n{\n}"];
        assert_eq!(scanned(&halves), halves.concat());

        assert_eq!(
            scanned(&["GET / HTTP/1.1\nHost: a\n\n"])
                .matches('\0')
                .count(),
            3
        );
        let hidden = "GET / HTTP/1.1\r\nA: b\nHost: a\r\n\r\n";
        assert_eq!(scanned(&[hidden]), hidden.replace("b\n", "b\0"));
    }

    #[test]
    fn what_arrives_during_an_answer_is_not_a_head() {
        let mut scan = HeadScan::default();
        let mut scanned = |text: &str, is_answering| {
            let mut bytes = text.as_bytes().to_vec();
            scan.scan(&mut bytes, is_answering);
            String::from_utf8(bytes).unwrap()
        };

        assert_eq!(
            scanned("GET / HTTP/1.1\r\nHost: a\r\n\r\n", false).len(),
            27
        );
        assert_eq!(scanned("{\n", true), "{\n");
        assert_eq!(scanned("\r\n\r\n{\n}", false), "\r\n\r\n{\n}", "a rest");
        assert_eq!(scanned("", true), "");
        assert_eq!(scanned("GET / HTTP/1.1\n", false), "GET / HTTP/1.1\0");
    }

    #[test]
    fn only_the_answer_of_the_parser_is_replaced() {
        let parsers = "HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n\
                       content-length: 0\r\ndate: Thu, 01 Jan 1970 00:00:00 GMT\r\n\r\n";
        let answer = answer_instead_of(parsers.as_bytes()).unwrap();
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.contains("x-request-id: ") && answer.contains("\"status\":431"));

        for other in [
            parsers.replace("date", "x-request-id: 1\r\ndate"),
            parsers.replace("431", "204"),
            format!("{parsers}x"),
        ] {
            assert_eq!(answer_instead_of(other.as_bytes()), None, "{other}");
        }
    }
}
