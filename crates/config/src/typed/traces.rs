//! Traces: which requests have a place in one, and where spans are sent.

use std::path::PathBuf;

use super::UpstreamServer;

defaults! {
    /// What becomes of the traces that requests belong to.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Traces {
        /// Each request has a place in a trace.
        pub has_ids: bool,
        /// Which traces are recorded.
        pub share: TraceShare,
        /// Whose traces are continued.
        pub parents: TraceParents,
        /// Where spans are sent.
        pub export: Option<TraceExport>,
    }
}

/// Which traces are recorded, as a share from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TraceShare {
    /// Of those that begin here; those that were begun elsewhere, where their flags say so.
    ParentBased(f64),
    /// Of all, whatever their flags say.
    Ratio(f64),
}

impl Default for TraceShare {
    fn default() -> Self {
        TraceShare::ParentBased(0.01)
    }
}

/// Whose traces are continued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TraceParents {
    /// Those of any client.
    #[default]
    All,
    /// Those of trusted proxies.
    Trusted,
}

/// A collector of spans, which takes OTLP over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceExport {
    /// Where it is.
    pub server: UpstreamServer,
    /// The path that takes spans.
    pub path: String,
    /// Headers of each request to it: visible ASCII. They may hold a password.
    pub headers: Vec<(String, String)>,
    /// Attributes of the service, with `service.name`.
    pub resource: Vec<(String, String)>,
    /// File with the authorities that its certificate is checked by; `None`: those of the system.
    pub ca: Option<PathBuf>,
}
