//! The template: it imports the application once and forks the processes that serve, so that they share
//! its memory until they write to it.
//!
//! Has one thread and never serves: a fork copies only the thread that forks, and a lock that another held
//! would stay locked for ever.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use config::failure::Failure;
use config::typed::HookMoment;
use ipc::{Channel, ProcessEvent, ReceivedMessage, SupervisorCommand};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, WaitOptions, pidfd_open, waitpid};
use server::handler::Handler;

use crate::hooks::Hooks;
use crate::host::{AppHost, Forked};
use crate::process::{self, Begun};
use crate::{COULD_NOT, DONE};

/// Imports, waits for orders to fork; in a forked process, serves.
pub(crate) fn run(begun: Begun, host: Option<&dyn AppHost>) -> i32 {
    let hooks = Hooks::new(&begun.config, host);
    // The functions of hooks too: all that their import makes is to be shared.
    let handlers = match process::imported(&begun, &hooks, host) {
        Ok(handlers) => handlers,
        Err(failure) => return process::fail(&begun.channel, &failure),
    };
    let Some(host) = host else {
        let failure = Failure::new("`preload`: there is no application to import");
        return process::fail(&begun.channel, &failure);
    };
    // Before anything is forked: objects that the collector never looks at stay shared between the processes.
    host.freeze();
    let ready = ProcessEvent::Ready {
        python: Some(host.describe()),
        event_loops: Vec::new(),
        modules: host.modules(),
    };
    if begun.channel.send(&ready, &[]).is_err() {
        return COULD_NOT;
    }
    match wait_for_forks(&begun.channel, host) {
        Some(channel) => {
            // This is the forked process from here on, and what the template was begun with is not its own.
            drop(begun);
            match process::begin(channel) {
                Ok(begun) => serve_forked(begun, &hooks, handlers, host),
                Err(code) => code,
            }
        }
        None => DONE,
    }
}

fn serve_forked(
    begun: Begun,
    hooks: &Hooks<'_>,
    handlers: Vec<Arc<dyn Handler>>,
    host: &dyn AppHost,
) -> i32 {
    match hooks.call(HookMoment::PostFork) {
        Ok(()) => process::serve_with(begun, hooks, handlers, Some(host)),
        Err(failure) => process::fail(&begun.channel, &failure),
    }
}

/// In a forked process, its channel; in the template `None`, once the supervisor has let it go.
fn wait_for_forks(channel: &Channel, host: &dyn AppHost) -> Option<Channel> {
    let mut children: HashMap<Pid, OwnedFd> = HashMap::new();
    loop {
        let mut watched = vec![PollFd::new(channel, PollFlags::IN)];
        watched.extend(
            children
                .values()
                .map(|pidfd| PollFd::new(pidfd, PollFlags::IN)),
        );
        // Interrupted or not: everything is looked at.
        let _ = poll(&mut watched, None);
        tell_of_ends(channel, &mut children);
        match channel.receive_now::<SupervisorCommand>() {
            Ok(Some(received)) => {
                let theirs = fork(channel, host, received, &mut children);
                if theirs.is_some() {
                    return theirs;
                }
            }
            Ok(None) => return None,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return None,
        }
    }
}

/// Gives the channel of the forked process in that process only.
fn fork(
    channel: &Channel,
    host: &dyn AppHost,
    received: ReceivedMessage<SupervisorCommand>,
    children: &mut HashMap<Pid, OwnedFd>,
) -> Option<Channel> {
    let (SupervisorCommand::Fork, Some(theirs)) =
        (received.message, received.fds.into_iter().next())
    else {
        return None;
    };
    let cause = match host.fork() {
        // Without its channel this copy of the template must not go on as one.
        Ok(Forked::Child) => match Channel::try_from(theirs) {
            Ok(channel) => return Some(channel),
            Err(_) => std::process::exit(COULD_NOT),
        },
        Ok(Forked::Parent(pid)) => {
            let pid = i32::try_from(pid).ok().and_then(Pid::from_raw)?;
            match pidfd_open(pid, PidfdFlags::empty()) {
                Ok(pidfd) => {
                    let notice = ProcessEvent::Forked {
                        pid: pid.as_raw_nonzero().get().unsigned_abs(),
                    };
                    let _ = channel.send(&notice, &[pidfd.as_fd()]);
                    children.insert(pid, pidfd);
                    return None;
                }
                Err(error) => error.to_string(),
            }
        }
        Err(error) => error.to_string(),
    };
    let _ = channel.send(&ProcessEvent::NotForked { cause }, &[]);
    None
}

fn tell_of_ends(channel: &Channel, children: &mut HashMap<Pid, OwnedFd>) {
    children.retain(|pid, _| match waitpid(Some(*pid), WaitOptions::NOHANG) {
        Ok(None) => true,
        Ok(Some((_, status))) => {
            let notice = ProcessEvent::ChildEnded {
                pid: pid.as_raw_nonzero().get().unsigned_abs(),
                wait_status: status.as_raw(),
            };
            let _ = channel.send(&notice, &[]);
            false
        }
        Err(_) => false,
    });
}
