//! The admin listener: what Prometheus, autoscalers, probes and people ask about a server, over HTTP.
//!
//! It is a process of its own, which serves no application: it answers when all threads are busy, and nothing that its
//! clients do reaches those that serve. What it says comes from the supervisor, which knows all processes; each answer is
//! kept for a moment, so that many clients cost no more than one.
//!
//! ```text
//! client ── HTTP ──► listener ── access ──► answers ── query ──► supervisor
//! ```

#![forbid(unsafe_code)]

mod access;
mod analysis;
mod answers;
mod history;
mod listener;
mod live;
mod page;
mod supervisor_link;

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use config::failure::StartFault;
use config::typed::{AdminBind, AdminConfig};
use ipc::Channel;

use access::Access;
pub use analysis::{Analysis, Analyst};
use answers::Answers;
use listener::Listener;
use supervisor_link::SupervisorLink;

/// Answers clients until the supervisor ends this process or is gone. `warn` gets what its users are to know;
/// `analyst` makes reports and simulations of the last requests.
///
/// # Errors
/// It cannot listen, or has no runtime.
pub fn run(
    config: &AdminConfig,
    channel: &Arc<Channel>,
    warn: fn(&str),
    analyst: Analyst,
) -> Result<(), StartFault> {
    let bind = config.bind.as_ref().expect("it is started to listen");
    let what = match bind {
        AdminBind::Tcp(address) => format!("admin_bind `{address}`"),
        AdminBind::Unix(path) => format!("admin_bind `unix:{}`", path.display()),
    };
    let fault = |error: &io::Error| StartFault::of_io(&what, error);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build_local(tokio::runtime::LocalOptions::default())
        .map_err(|error| fault(&error))?;
    runtime.block_on(async {
        let listener = Listener::open(bind).map_err(|error| fault(&error))?;
        let link = SupervisorLink::open(channel).map_err(|error| fault(&error))?;
        let access = Access::new(config, warn);
        let answers = Rc::new(Answers::new(access, Rc::clone(&link), analyst));
        tokio::task::spawn_local(listener.serve(answers));
        link.run().await;
        Ok(())
    })
}

/// Seconds since 1970.
fn now_s() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}
