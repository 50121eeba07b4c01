//! What is answered to a request.

use std::rc::Rc;

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::header::{
    ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue,
    WWW_AUTHENTICATE,
};
use hyper::{Method, Request, Response, StatusCode};
use ipc::AdminQuery;
use telemetry::counters::Exposition;

use crate::access::{Access, Denial, Peer, is_of_another_site};
use crate::analysis::{Analyses, Analysis, AnalysisFault, Analyst, told};
use crate::history::{self, HistorySpan};
use crate::live::{LiveEvents, LiveFeed};
use crate::supervisor_link::SupervisorLink;
use crate::{now_s, page};

const TEXT: &str = "text/plain; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";
const JSON: &str = "application/json";
const SILENT: &str = "the supervisor does not answer\n";
const SPANS: &str = "span: expected 15m, 1h or 24h\n";
const NO_HISTORY: &str = "the server has no history of requests\n";
const EVENTS: &str = "text/event-stream";
/// For clients that are no browsers: those get the page.
const INDEX: &str = "\
/metrics  for Prometheus (OpenMetrics or text)
/status   the state of all processes, as JSON
/load     requests that run and wait, as JSON
/live     what the page shows, as server-sent events
/history  the last hours, as JSON: ?span=15m, 1h or 24h
/report   what `milepost report` says of the same requests, as JSON
/whatif   what `milepost whatif` predicts from them, as JSON
/ready    200 while requests are served, else 503
/health   200 while the server is alive
";

/// All answers.
pub(crate) struct Answers {
    access: Access,
    link: Rc<SupervisorLink>,
    live: Rc<LiveFeed>,
    analyses: Analyses,
}

/// The body of an answer: whole, or the events of the live view.
pub(crate) type AnswerBody = Either<Full<Bytes>, LiveEvents>;

/// One answer, but for what all have.
struct Answer {
    status: u16,
    content_type: &'static str,
    body: AnswerBody,
    extra: Option<(HeaderName, HeaderValue)>,
}

impl Answer {
    fn text(status: u16, text: &'static str) -> Self {
        Self {
            status,
            content_type: TEXT,
            body: Either::Left(Full::from(text)),
            extra: None,
        }
    }

    /// With a text that was made for this request.
    fn said(status: u16, text: String) -> Self {
        Self {
            body: Either::Left(Full::from(text + "\n")),
            ..Self::text(status, "")
        }
    }

    fn json(text: String) -> Self {
        Self {
            content_type: JSON,
            body: Either::Left(Full::from(text)),
            ..Self::text(200, "")
        }
    }

    fn with(self, name: HeaderName, value: &'static str) -> Self {
        Self {
            extra: Some((name, HeaderValue::from_static(value))),
            ..self
        }
    }
}

impl Answers {
    pub(crate) fn new(access: Access, link: Rc<SupervisorLink>, analyst: Analyst) -> Self {
        let live = LiveFeed::new(Rc::clone(&link));
        Self {
            access,
            link,
            live,
            analyses: Analyses::new(analyst),
        }
    }

    /// Counts a client that was dropped because it took nothing.
    pub(crate) fn client_dropped(&self) {
        self.link.client_dropped();
    }

    /// Answers one request of this peer.
    pub(crate) async fn of<B>(&self, peer: Peer, request: &Request<B>) -> Response<AnswerBody> {
        let Answer {
            status,
            content_type,
            body,
            extra,
        } = self.find(peer, request).await;
        let mut response = Response::new(body);
        *response.status_mut() = StatusCode::from_u16(status).expect("statuses are known ones");
        let fields = response.headers_mut();
        let own = [
            (CONTENT_TYPE, content_type),
            (CACHE_CONTROL, "no-store"),
            (HeaderName::from_static("x-content-type-options"), "nosniff"),
        ];
        for (name, value) in own {
            fields.insert(name, HeaderValue::from_static(value));
        }
        fields.extend(extra.map(|(name, value)| (Some(name), value)));
        response
    }

    async fn find<B>(&self, peer: Peer, request: &Request<B>) -> Answer {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return Answer::text(405, "GET and HEAD alone\n").with(ALLOW, "GET, HEAD");
        }
        let path = request.uri().path();
        // Probes have no token, and learn nothing but whether the server is there.
        match path {
            "/health" => return self.health().await,
            "/ready" => return self.ready().await,
            // The page holds nothing of the server. Its script asks for the token, and sends it.
            "/" if wants_html(request) => return page_answer(),
            _ => {}
        }
        if let Err(denial) = self.access.check(peer, request.headers()) {
            let (status, text) = denial.answer();
            let answer = Answer::text(status, text);
            return match denial {
                Denial::Token => answer.with(WWW_AUTHENTICATE, "Bearer"),
                _ => answer,
            };
        }
        match path {
            "/" => Answer::text(200, INDEX),
            "/metrics" => self.metrics(request).await,
            "/status" => self.json(AdminQuery::Status).await,
            "/live" => self.live(request),
            "/load" => self.json(AdminQuery::Load).await,
            "/history" => self.history(request).await,
            "/report" => self.analysis(request, Analysis::Report).await,
            "/whatif" => self.analysis(request, Analysis::Whatif).await,
            _ => Answer::text(404, "no such path\n"),
        }
    }

    async fn history<B>(&self, request: &Request<B>) -> Answer {
        let Some(span) = HistorySpan::of_query(request.uri().query().unwrap_or_default()) else {
            return Answer::text(400, SPANS);
        };
        let Some(file) = self.link.history().await else {
            return Answer::text(503, NO_HISTORY);
        };
        match ipc::history::sums(&file) {
            Ok(sums) => Answer::json(history::json(&sums, span, now_s())),
            Err(fault) => Answer::said(503, told(&fault)),
        }
    }

    async fn analysis<B>(&self, request: &Request<B>, analysis: Analysis) -> Answer {
        if let Some(refusal) = costs_too_much(request) {
            return refusal;
        }
        let Some(span) = HistorySpan::of_query(request.uri().query().unwrap_or_default()) else {
            return Answer::text(400, SPANS);
        };
        let Some(file) = self.link.history().await else {
            return Answer::text(503, NO_HISTORY);
        };
        match self.analyses.make(analysis, file, span.secs()).await {
            Ok(text) => Answer::json(text),
            Err(AnalysisFault::Busy) => Answer::text(503, "another one is under way\n"),
            Err(AnalysisFault::Refused(cause)) => Answer::said(422, cause),
        }
    }

    fn live<B>(&self, request: &Request<B>) -> Answer {
        if let Some(refusal) = costs_too_much(request) {
            return refusal;
        }
        match self.live.subscribe() {
            Some(events) => Answer {
                status: 200,
                content_type: EVENTS,
                body: Either::Right(events),
                extra: None,
            },
            None => Answer::text(503, "too many pages are open\n"),
        }
    }

    async fn health(&self) -> Answer {
        match self.link.ask(AdminQuery::Ready).await {
            Some(_) => Answer::text(200, "alive\n"),
            None => Answer::text(503, SILENT),
        }
    }

    async fn ready(&self) -> Answer {
        let said = self.link.ask(AdminQuery::Ready).await;
        match said.map(|said| serde_json::from_slice(&said).unwrap_or(false)) {
            Some(true) => Answer::text(200, "ready\n"),
            Some(false) => Answer::text(503, "not ready\n"),
            None => Answer::text(503, SILENT),
        }
    }

    async fn metrics<B>(&self, request: &Request<B>) -> Answer {
        let accept = request.headers().get(ACCEPT);
        let accept = accept.and_then(|accept| accept.to_str().ok());
        let form = Exposition::accepted_by(accept.unwrap_or_default());
        self.told(AdminQuery::Metrics(form), form.content_type())
            .await
    }

    async fn json(&self, query: AdminQuery) -> Answer {
        self.told(query, JSON).await
    }

    async fn told(&self, query: AdminQuery, content_type: &'static str) -> Answer {
        match self.link.ask(query).await {
            Some(body) => Answer {
                status: 200,
                content_type,
                body: Either::Left(Full::new(body)),
                extra: None,
            },
            None => Answer::text(503, SILENT),
        }
    }
}

/// Refuses requests that take processor time or a place of few, and get nothing for it: those of a page of another site,
/// which cannot read the answer, and those for the head alone.
fn costs_too_much<B>(request: &Request<B>) -> Option<Answer> {
    if is_of_another_site(request.headers()) {
        return Some(Answer::text(403, "only the page of this server may ask\n"));
    }
    let is_get = request.method() == Method::GET;
    (!is_get).then(|| Answer::text(405, "GET alone\n").with(ALLOW, "GET"))
}

fn wants_html<B>(request: &Request<B>) -> bool {
    let accept = request.headers().get(ACCEPT);
    let accept = accept.and_then(|accept| accept.to_str().ok());
    accept.is_some_and(|accept| accept.contains("text/html"))
}

fn page_answer() -> Answer {
    let Some(page) = page::Page::with_new_nonce() else {
        return Answer::text(503, "the kernel gives no random number\n");
    };
    Answer {
        status: 200,
        content_type: HTML,
        body: Either::Left(Full::from(page.html)),
        extra: Some((CONTENT_SECURITY_POLICY, page.policy)),
    }
}
