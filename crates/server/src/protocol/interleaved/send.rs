//! FrameSender: frames leave one at a time, as the client's window and the response's share of the bandwidth allow; and
//! what a stream waits for.

use std::future::poll_fn;
use std::io::IoSlice;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

use queueing::Pace;
use telemetry::{Nanos, Stamp};

use super::stream::Stream;
use super::{FrameKind, HEADER_BYTES};
use crate::bandwidth::BandwidthLimit;
use crate::exchange::stream::StreamShared;
use crate::protocol::{Stop, Woken};
use crate::response::ResponseHead;
use config::typed::Rate;

/// Largest payload of a frame that is sent: other streams have their turn after it.
const FRAME_BYTES_MAX: u64 = 16 << 10;
/// A wait without a deadline.
const LONG: Nanos = Nanos::from_secs(86_400);

/// A response on its way.
pub(super) struct FrameSender {
    /// Bytes of the body that the transport took.
    pub(super) sent: u64,
    pub(super) pace: Pace,
    limit: Option<BandwidthLimit>,
}

/// What a wait is to be ended by, beside what it waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Hears {
    /// The end of the stream, or of the driver.
    Both,
    /// The end of the driver.
    Driver,
}

impl Stream {
    /// Tells the client that no more of the response comes.
    pub(super) async fn stop(&self, stop: Stop) {
        self.mux.connection.count_stop(stop);
        // A connection that is gone needs no telling.
        let _ = self.send_frame(FrameKind::Reset, &[]).await;
    }

    pub(super) fn sending(&self, route: u16, rate: Option<Rate>) -> FrameSender {
        let timeouts = &self.driver.config().timeouts;
        FrameSender {
            sent: 0,
            pace: Pace::new(telemetry::now(), timeouts.send, timeouts.send_rate_min),
            limit: self.driver.shared.bandwidth.limit(None, route, rate),
        }
    }

    /// Bytes that may be sent now; waits for the client's window, and for the response's share of the bandwidth.
    pub(super) async fn allowance(
        &self,
        sending: &mut FrameSender,
        stream: Option<&StreamShared>,
    ) -> Result<usize, Stop> {
        let window = self.wait(sending.pace.deadline(), Hears::Both, |context| {
            if let Some(stream) = stream {
                stream.ownership.watch(context);
                if let Some(why) = stream.pending().abandoned() {
                    return Some(Err(Stop::cut(why)));
                }
            }
            Some(Ok(self.inbox.window.get())).filter(|window| *window != Ok(0))
        });
        let window = window.await.map_err(|woken| Stop {
            cause: match woken {
                Woken::Deadline => "the client gave no window",
                _ => "",
            },
            ..woken.stop()
        })??;
        let mut most = window.min(FRAME_BYTES_MAX);
        if let Some(limit) = &mut sending.limit {
            let now = telemetry::now();
            let (from, bytes) = limit.reserve(most, now);
            sending.pace.hold(now);
            let rest = self.wait(from, Hears::Both, |_| None::<()>);
            match rest.await {
                Ok(()) | Err(Woken::Deadline) => most = bytes.min(most),
                Err(woken) => {
                    limit.give_back(bytes);
                    return Err(woken.stop());
                }
            }
            sending.pace.resume(telemetry::now());
        }
        Ok(usize::try_from(most).unwrap_or(usize::MAX))
    }

    pub(super) async fn send_head(&self, head: &ResponseHead) -> Result<(), Stop> {
        let mut payload = head.status.to_be_bytes().to_vec();
        payload.extend_from_slice(head.fields.as_bytes());
        self.send_frame(FrameKind::Head, &payload).await
    }

    pub(super) async fn send_data(
        &self,
        data: &[u8],
        sending: &mut FrameSender,
    ) -> Result<(), Stop> {
        let bytes = data.len() as u64;
        self.inbox.window.set(self.inbox.window.get() - bytes);
        self.send_frame(FrameKind::Data, data).await?;
        sending.sent += bytes;
        sending.pace.advance(bytes, telemetry::now());
        // A client that takes everything at once would leave the others no turn.
        tokio::task::yield_now().await;
        Ok(())
    }

    /// Sends a frame, behind those of streams that have asked before. One that is begun is sent to its end, or
    /// the connection ends.
    pub(super) async fn send_frame(&self, kind: FrameKind, payload: &[u8]) -> Result<(), Stop> {
        let turn = self.mux.turn.acquire().await;
        let _turn = turn.map_err(|_| self.mux.stop())?;
        let mut frame = Vec::with_capacity(HEADER_BYTES + payload.len());
        frame.extend_from_slice(&self.number.to_be_bytes());
        frame.push(kind as u8);
        frame.extend_from_slice(&(payload.len() as u32).to_be_bytes());
        frame.extend_from_slice(payload);
        let mut left = frame.as_slice();
        while !left.is_empty() {
            let sent = self.mux.connection.transport.send(&[IoSlice::new(left)]);
            let sent = sent.map_err(|error| Stop::of_send(&error));
            let sent = match sent {
                Ok(0) => self.writable().await.map(|()| 0),
                sent => sent,
            };
            let sent = sent.inspect_err(|_| {
                self.mux.connection.transport.reset_on_close();
                self.mux.end(self.mux.over.get().unwrap_or(Woken::Failed));
            })?;
            left = &left[sent..];
        }
        Ok(())
    }

    async fn writable(&self) -> Result<(), Stop> {
        let transport = &self.mux.connection.transport;
        transport.is_full();
        let timeout = self.driver.config().timeouts.send;
        let mut alarm = pin!(sleep_until(telemetry::now().plus(timeout)));
        poll_fn(|context| {
            self.inbox.watch(context);
            if self.mux.over.get().is_some() {
                return Poll::Ready(Err(self.mux.stop()));
            }
            if let Poll::Ready(ready) = transport.poll_writable(context) {
                return Poll::Ready(ready.map(drop).map_err(|_| Woken::Failed.stop()));
            }
            let late = alarm.as_mut().poll(context);
            late.map(|()| Err(Woken::Deadline.stop()))
        })
        .await
    }

    /// Waits until `look` gives something: it looks whenever a frame has come, a worker has moved or the deadline
    /// has passed.
    pub(super) async fn wait<T>(
        &self,
        deadline: Stamp,
        hears: Hears,
        mut look: impl FnMut(&mut Context<'_>) -> Option<T>,
    ) -> Result<T, Woken> {
        let mut alarm = pin!(sleep_until(deadline));
        poll_fn(|context| {
            self.inbox.watch(context);
            if let Some(found) = look(context) {
                return Poll::Ready(Ok(found));
            }
            let over = self.mux.over.get();
            let is_gone = over.is_some() || self.inbox.is_reset.get();
            match over {
                Some(Woken::Cut) => return Poll::Ready(Err(Woken::Cut)),
                _ if is_gone && hears == Hears::Both => return Poll::Ready(Err(Woken::End)),
                _ => {}
            }
            let late = alarm.as_mut().poll(context);
            late.map(|()| Err(Woken::Deadline))
        })
        .await
    }
}

fn sleep_until(deadline: Stamp) -> tokio::time::Sleep {
    let left = deadline.since(telemetry::now()).0.min(LONG.0);
    tokio::time::sleep(Duration::from_nanos(left))
}
