//! A proxy's side toward upstreams, as pure machines: heads of requests written, heads and bodies of responses read.
//!
//! Takes the parsed head of a client's request and gives the bytes of another one ([`UpstreamRequest`]); takes the bytes
//! of an upstream and gives what its response is ([`UpstreamResponse`], [`UpstreamBody`]). No byte of a head is passed on
//! as it came: each head is written anew from its parsed form, with one framing, so that no two readers can find
//! different messages in it (request smuggling). It must not know connections, retries or which upstream is meant.

mod body;
mod connection_options;
mod fault;
mod request;
mod response;
mod upgrade;

pub use body::UpstreamBody;
pub use fault::UpstreamFault;
pub use request::{
    ForwardingChain, ForwardingFields, HostField, RequestFault, UpstreamRequest, is_forwarding,
    may_be_set, own_request,
};
pub use response::{UpstreamHeadStep, UpstreamResponse};
pub use upgrade::{NotAgreed, WantedUpgrade};

#[cfg(test)]
mod tests;
