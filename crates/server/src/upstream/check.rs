//! Active checks: requests of the proxy itself that find out whether a server works.
//!
//! One driver of each process checks each address of a group, on a connection of its own each time: a check that used a
//! kept connection would not find a server that takes no new ones.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use config::typed::{HealthCheck, UpstreamProtocol};
use http::upstream::{UpstreamHeadStep, UpstreamResponse, own_request};
use http::{Asked, FieldLines};
use logging::Level;
use queueing::balancing::CheckResult;
use tokio::time::timeout;

use super::connection::UpstreamConnection;
use super::fault::UpstreamFault;
use super::group::{Endpoint, UpstreamGroup};
use super::http2::connect_alone;
use super::http2_stream::{Http2Stream, final_response};
use crate::driver::Driver;

/// Statuses below this are good.
const BAD_STATUS_MIN: u16 = 400;

impl Driver {
    /// Checks the servers of a group again and again, while the driver runs.
    pub(super) async fn keep_checking(self: Rc<Self>, group: Arc<UpstreamGroup>) {
        let Some(check) = group.settings.check.clone() else {
            return;
        };
        let every = Duration::from_nanos(check.interval.0);
        let check = Rc::new(check);
        loop {
            for endpoint in group.endpoints() {
                let (driver, group, check) =
                    (Rc::clone(&self), Arc::clone(&group), Rc::clone(&check));
                tokio::task::spawn_local(async move {
                    driver.check(&group, &endpoint, &check).await;
                });
            }
            // With some jitter: several proxies must not ask all at once.
            let jitter = fastrand::f64().mul_add(0.2, 0.9);
            tokio::time::sleep(every.mul_f64(jitter)).await;
        }
    }

    async fn check(&self, group: &UpstreamGroup, endpoint: &Arc<Endpoint>, check: &HealthCheck) {
        let longest = Duration::from_nanos(check.timeout.0);
        let asked = timeout(longest, self.ask(group, endpoint, check)).await;
        let fault = match asked {
            Ok(Ok(status)) if status < BAD_STATUS_MIN => None,
            Ok(Ok(status)) => Some(format!("it answered {status}")),
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("no answer in time".to_owned()),
        };
        let now = telemetry::now();
        let was_used = group.is_used(endpoint, now);
        let result = match fault {
            None => CheckResult::Passed,
            Some(_) => CheckResult::Failed,
        };
        group.checked(endpoint, now, result);
        let is_used = group.is_used(endpoint, now);
        if was_used != is_used {
            let (name, upstream) = (endpoint.name(), &group.settings.name);
            let text = match fault {
                Some(fault) => format!("upstream {upstream}: {name} gets no requests: {fault}"),
                None => format!("upstream {upstream}: {name} gets requests again"),
            };
            self.shared.log.error(Level::Warning, &text);
        }
    }

    /// The status that a server answers.
    async fn ask(
        &self,
        group: &UpstreamGroup,
        endpoint: &Endpoint,
        check: &HealthCheck,
    ) -> io::Result<u16> {
        let host = group.settings.servers[endpoint.server].authority();
        let request = own_request(&check.path, &host, "milepost-check");
        if group.settings.protocol == UpstreamProtocol::Http2 {
            let asked = self.ask_by_http2(group, endpoint, &request).await;
            return asked.map_err(|fault| io::Error::other(fault.cause()));
        }
        let made = group.connector.connect(endpoint, None).await;
        let mut connection = made.map_err(|fault| io::Error::other(fault.cause()))?;
        connection.send_all(&request).await?;
        let mut received = Vec::new();
        let mut fields = FieldLines::new();
        let mut seen = 0;
        loop {
            let limits = &self.config().limits;
            let parsed =
                UpstreamResponse::parse(&received, &mut seen, Asked::Other, limits, &mut fields);
            match parsed.map_err(|fault| io::Error::other(fault.text()))? {
                UpstreamHeadStep::Complete(response) if response.is_interim() => {
                    received.drain(..response.head_bytes);
                }
                UpstreamHeadStep::Complete(response) => return Ok(response.status),
                UpstreamHeadStep::Partial => {
                    poll_fn(|context| self.poll_more(&mut connection, context, &mut received))
                        .await?;
                }
            }
        }
    }

    async fn ask_by_http2(
        &self,
        group: &UpstreamGroup,
        endpoint: &Endpoint,
        request: &[u8],
    ) -> Result<u16, UpstreamFault> {
        let limits = &self.config().limits;
        let place = connect_alone(group, endpoint, limits.head_bytes_max).await?;
        let scheme = group.settings.servers[endpoint.server].scheme();
        let mut stream = Http2Stream::open(place, request, scheme, false)?;
        let head = stream.final_head().await?;
        let (response, _) = final_response(&head, Asked::Other, limits)?;
        Ok(response.status)
    }

    pub(super) fn poll_more(
        &self,
        connection: &mut UpstreamConnection,
        context: &mut Context<'_>,
        received: &mut Vec<u8>,
    ) -> Poll<io::Result<()>> {
        let mut scratch = self.take_scratch();
        let read = connection.poll_read(context, &mut scratch.input);
        if let Poll::Ready(Ok(bytes)) = read {
            received.extend_from_slice(&scratch.input[..bytes]);
        }
        self.put_scratch(scratch);
        match ready!(read)? {
            0 => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            _ => Poll::Ready(Ok(())),
        }
    }
}
