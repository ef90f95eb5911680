//! The body of a request as it arrives: at a least rate, and read to its end even if its handler
//! refuses it.
//!
//! Many clients write their whole body before they read. If the server closed the connection while
//! they write, they would see a broken connection instead of the answer. So the rest of an unread
//! body is received and thrown away, within bounds, while the answer is on its way.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::{
    BoxError,
    body::{Body, Bytes, HttpBody},
    http::{HeaderMap, header},
};
use http_body_util::BodyExt as _;
use hyper::body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep};

/// How long a body may take beside what its size allows.
const GRACE: Duration = Duration::from_secs(5);
/// How much of a refused body is received and thrown away. A client that sends more is
/// disconnected.
const DRAINED_BYTES: usize = 16 * 1024 * 1024;
/// How long that may take.
const DRAIN_TIME: Duration = Duration::from_secs(10);

/// The body arrived more slowly than the least rate.
#[derive(Debug, thiserror::Error)]
#[error("the body arrives too slowly")]
pub(super) struct TooSlow;

/// A body that must arrive at a least rate, and that is drained when it is dropped.
pub(crate) struct ArrivingBody {
    /// None once it has ended, failed, or is being drained.
    inner: Option<Body>,
    /// Bytes a second.
    least_rate: usize,
    /// Whether the client sends nothing before it is asked to.
    waits_for_continue: bool,
    received: usize,
    began_at: Option<Instant>,
    /// Set while the body is waited for.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl ArrivingBody {
    pub(crate) fn new(headers: &HeaderMap, inner: Body, least_rate: usize) -> Self {
        Self {
            inner: Some(inner),
            least_rate,
            waits_for_continue: headers.contains_key(header::EXPECT),
            received: 0,
            began_at: None,
            deadline: None,
        }
    }

    /// When the next bytes must have arrived.
    fn due_at(&mut self) -> Instant {
        let began_at = *self.began_at.get_or_insert_with(Instant::now);
        let seconds = self.received / self.least_rate.max(1);
        began_at + GRACE + Duration::from_secs(seconds as u64)
    }

    /// Fails a body that is too slow.
    fn check_deadline(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let due_at = self.due_at();
        let deadline = self
            .deadline
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due_at)));
        ready!(deadline.as_mut().poll(cx));

        self.inner = None;
        Poll::Ready(Some(Err(TooSlow.into())))
    }
}

impl HttpBody for ArrivingBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some(inner) = &mut self.inner else {
            return Poll::Ready(None);
        };
        let Poll::Ready(frame) = Pin::new(inner).poll_frame(cx) else {
            return self.check_deadline(cx);
        };

        self.deadline = None;
        match frame {
            Some(Ok(frame)) => {
                self.began_at.get_or_insert_with(Instant::now);
                self.received += frame.data_ref().map_or(0, Bytes::len);
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(error)) => {
                self.inner = None;
                Poll::Ready(Some(Err(error.into())))
            }
            None => {
                self.inner = None;
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Some(inner) => inner.size_hint(),
            None => SizeHint::with_exact(0),
        }
    }
}

impl Drop for ArrivingBody {
    fn drop(&mut self) {
        let Some(inner) = self.inner.take() else {
            return;
        };
        // Reading would ask a client that waits for `100 Continue` to send what is refused. A body
        // that was read from has been asked for.
        let is_unasked = self.waits_for_continue && self.began_at.is_none();
        if inner.is_end_stream() || is_unasked {
            return;
        }

        // A task of its own, so that the answer need not wait. The connection stays open until the
        // task ends, and ends it when the client disconnects.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(tokio::time::timeout(DRAIN_TIME, drain(inner)));
        }
    }
}

async fn drain(mut body: Body) {
    let mut drained = 0;
    while let Some(Ok(frame)) = body.frame().await {
        drained += frame.data_ref().map_or(0, Bytes::len);
        if drained > DRAINED_BYTES {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::{StreamExt as _, channel::mpsc};

    use super::*;

    fn arriving(least_rate: usize) -> (mpsc::UnboundedSender<Bytes>, ArrivingBody) {
        let (sender, chunks) = mpsc::unbounded();
        let body = Body::from_stream(chunks.map(Ok::<_, Infallible>));
        (
            sender,
            ArrivingBody::new(&HeaderMap::new(), body, least_rate),
        )
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_has_more_time_the_more_of_it_has_arrived() {
        let (sender, mut body) = arriving(10);
        let began = Instant::now();
        let chunk = Bytes::from_static(&[0; 100]);

        // 100 bytes allow 10 s.
        for _ in 0..3 {
            sender.unbounded_send(chunk.clone()).unwrap();
            assert!(body.frame().await.unwrap().is_ok());
            tokio::time::advance(Duration::from_secs(10)).await;
        }

        let slow = body.frame().await.unwrap().unwrap_err();
        assert!(slow.is::<TooSlow>());
        assert_eq!(began.elapsed().as_secs(), 35);
    }

    #[tokio::test]
    async fn the_rest_of_an_unread_body_is_received() {
        let (sender, mut body) = arriving(10);
        sender.unbounded_send(Bytes::from_static(b"a")).unwrap();
        assert!(body.frame().await.unwrap().is_ok());
        drop(body);

        let mut sent = 0;
        while sender.unbounded_send(Bytes::from(vec![0; 1 << 20])).is_ok() {
            sent += 1;
            tokio::task::yield_now().await;
        }
        assert!((16..100).contains(&sent), "{sent} MiB, then no more");
    }
}
