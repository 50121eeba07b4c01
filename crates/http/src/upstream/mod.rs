//! A proxy's side toward upstreams, as pure machines: heads and bodies of responses read.
//!
//! Takes the bytes of an upstream and gives what its response is ([`UpstreamResponse`], [`UpstreamBody`]). It must not know
//! connections, retries or which upstream is meant.

mod body;
mod connection_options;
mod fault;
mod response;

pub use body::UpstreamBody;
pub use fault::UpstreamFault;
pub use response::{UpstreamHeadStep, UpstreamResponse};
