//! A process that the supervisor has started: it serves, or it is the template that those are forked from.
//!
//! What it has to do comes over its channel, and so does what it says: a fault of its start is the
//! supervisor's to print.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use config::failure::{Failure, StartFault, plain};
use config::typed::{Config, HookMoment};
use ipc::payload::{self, Payload};
use ipc::{Channel, Identity, ProcessEvent, Role, SupervisorCommand};
use rustix::fs::Mode;
use server::handler::Handler;
use server::handler::error_app::ErrorApp;
use server::{Ended, RunnableLoop, Server, SupervisorLink};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::environment::CertificateFiles;
use crate::hooks::Hooks;
use crate::host::AppHost;
use crate::message::{self, Message};
use crate::{COULD_NOT, DONE, acme_client, admin, environment, serve, template};

/// Time for the interpreter to end, even when draining has used up its own.
const LEAVING_MIN: Duration = Duration::from_secs(1);
/// Descriptors that a process which serves nobody has open at most: connections, files, what a runtime and an
/// interpreter need.
const HELPER_OPEN_FILES: u64 = 256;

/// What a process knows when it has begun.
pub(crate) struct Begun {
    pub(crate) channel: Channel,
    pub(crate) identity: Identity,
    /// The file of all counters; a template has none.
    pub(crate) counters: Option<OwnedFd>,
    /// The file of the history.
    pub(crate) history: Option<OwnedFd>,
    /// The file of certificates and keys, where TLS is spoken.
    pub(crate) credentials: Option<OwnedFd>,
    pub(crate) payload: Payload,
    pub(crate) config: Config,
}

/// Does what the first order says, to the end.
pub(crate) fn run(channel: Channel, host: Option<&dyn AppHost>) -> i32 {
    match begin(channel) {
        Ok(begun) => match begun.identity.role {
            Role::Serving => load_and_serve(begun, host),
            Role::Template => template::run(begun, host),
            Role::AcmeClient => acme_client::run(begun, host),
            Role::Admin => admin::run(begun, host),
        },
        Err(code) => code,
    }
}

/// Reads who this process is and what it is to serve.
pub(crate) fn begin(channel: Channel) -> Result<Begun, i32> {
    // A supervisor that is gone needs no process.
    let Ok(Some(received)) = channel.receive::<SupervisorCommand>() else {
        return Err(COULD_NOT);
    };
    let SupervisorCommand::Begin(identity) = received.message else {
        return Err(fail(
            &channel,
            &Failure::new("a process was told to do something before it was told who it is"),
        ));
    };
    // The supervisor sends the file of the configuration first, then those of the counters, of the history
    // where the process keeps one, and of the certificates.
    let mut fds = received.fds.into_iter();
    let read = fds
        .next()
        .ok_or_else(|| std::io::Error::other("the file of its configuration is missing"))
        .and_then(|file| payload::from_file::<Payload>(file.as_fd()));
    let payload = read.map_err(|error| {
        let text = format!("cannot read what is to be served: {error}");
        fail(&channel, &Failure::new(text))
    })?;
    let config = understood(&payload).map_err(|failure| fail(&channel, &failure))?;
    if let Some(mask) = config.processes.umask {
        rustix::process::umask(Mode::from_bits_truncate(mask));
    }
    let has_history = identity.history.is_some();
    Ok(Begun {
        channel,
        identity,
        counters: fds.next(),
        history: has_history.then(|| fds.next()).flatten(),
        credentials: fds.next(),
        payload,
        config,
    })
}

fn understood(payload: &Payload) -> Result<Config, Failure> {
    std::env::set_current_dir(&payload.folder).map_err(|error| {
        let cause = environment::cause(&error);
        Failure::from(Message::new(
            &format!("`{}`", payload.folder.display()),
            cause,
        ))
    })?;
    let understood = environment::understood(&payload.sources, CertificateFiles::HandedOver)?;
    if let Some(fault) = understood.faults.first() {
        return Err(Failure::from(Message::from(fault)));
    }
    let config = understood.loaded.config;
    environment::raise_open_files(config::open_files_needed(&config));
    Ok(config)
}

fn load_and_serve(begun: Begun, host: Option<&dyn AppHost>) -> i32 {
    // A page that stands in for the application has none of its hooks.
    let hooks = match begun.payload.failure {
        Some(_) => Hooks::none(),
        None => Hooks::new(&begun.config, host),
    };
    let imported = hooks
        .call(HookMoment::PostFork)
        .and_then(|()| imported(&begun, &hooks, host));
    match imported {
        Ok(handlers) => serve_with(begun, &hooks, handlers, host),
        Err(failure) => fail(&begun.channel, &failure),
    }
}

/// The applications, and the functions of hooks.
pub(crate) fn imported(
    begun: &Begun,
    hooks: &Hooks<'_>,
    host: Option<&dyn AppHost>,
) -> Result<Vec<Arc<dyn Handler>>, Failure> {
    let handlers = handlers(begun, host)?;
    // Only now: the function of another hook may be in a module that imports the application.
    hooks.find()?;
    if begun.identity.reloads {
        hooks.call(HookMoment::OnReload)?;
    }
    Ok(handlers)
}

/// What runs each application, or the page that stands in the place of all.
fn handlers(begun: &Begun, host: Option<&dyn AppHost>) -> Result<Vec<Arc<dyn Handler>>, Failure> {
    let Some(failure) = &begun.payload.failure else {
        return Ok(serve::load_apps(&begun.config, host)?);
    };
    let page: Arc<dyn Handler> = Arc::new(ErrorApp::new(failure));
    Ok(vec![page; begun.config.apps.len()])
}

/// Opens the server and runs it to its end.
pub(crate) fn serve_with(
    begun: Begun,
    hooks: &Hooks<'_>,
    handlers: Vec<Arc<dyn Handler>>,
    host: Option<&dyn AppHost>,
) -> i32 {
    if let Err(failure) = hooks.call(HookMoment::WorkerReady) {
        return fail(&begun.channel, &failure);
    }
    let watches_code = begun.config.processes.development.is_some();
    let ready = ProcessEvent::Ready {
        python: host
            .filter(|_| !begun.config.apps.is_empty())
            .map(AppHost::describe),
        event_loops: event_loop_names(&handlers),
        modules: host
            .filter(|_| watches_code)
            .map(AppHost::modules)
            .unwrap_or_default(),
    };
    // The server's thread for the supervisor has it from now on; this end says how the process has ended.
    let channel = Arc::new(begun.channel);
    let link = SupervisorLink {
        channel: Arc::clone(&channel),
        identity: begun.identity,
        counters: begun.counters,
        history: begun.history,
        credentials: begun.credentials,
        ready,
    };
    match Server::open_under(begun.config, handlers, link) {
        Ok(server) => keep(server, &channel, hooks, host),
        Err(fault) => fail(&channel, &Failure::from(&fault)),
    }
}

/// For each application what its event loop is called, where it has one.
pub(crate) fn event_loop_names(handlers: &[Arc<dyn Handler>]) -> Vec<Option<String>> {
    let event_loops = handlers.iter().map(|handler| handler.event_loop());
    let names = event_loops.map(|found| found.map(|event_loop| event_loop.name().to_owned()));
    names.collect()
}

/// Runs the body of a process that serves nobody, away from the interpreter where there is one.
pub(crate) fn run_helper(
    begun: Begun,
    host: Option<&dyn AppHost>,
    what: &str,
    body: fn(Begun) -> i32,
) -> i32 {
    let mut begun = Some(begun);
    let mut body = move || {
        environment::raise_open_files(HELPER_OPEN_FILES);
        // A terminal and a service manager signal the whole group: these processes end when the supervisor says so, so
        // that questions are answered, and locks freed, until then.
        for signal in [SIGINT, SIGTERM] {
            let ignored = Arc::new(AtomicBool::new(false));
            if let Err(error) = signal_hook::flag::register(signal, ignored) {
                message::talk(&format!("milepost: {what}: {}\n", plain(&error)));
            }
        }
        begun.take().map_or(DONE, body)
    };
    match host {
        Some(host) => host.detached(&mut body),
        None => body(),
    }
}

/// Runs the server, away from the interpreter where there is one.
fn keep(server: Server, channel: &Channel, hooks: &Hooks<'_>, host: Option<&dyn AppHost>) -> i32 {
    let mut server = Some(server);
    let mut body = move || match server.take() {
        Some(mut server) => match server.take_event_loop() {
            Ok(Some(event_loop)) => run_loop(server, event_loop, channel, hooks),
            Ok(None) => conclude(server.run(), channel, hooks),
            Err(fault) => fail(channel, &Failure::from(&fault)),
        },
        None => COULD_NOT,
    };
    match host {
        Some(host) => host.detached(&mut body),
        None => body(),
    }
}

/// Runs an event loop on this thread, which is the interpreter's main thread, and the server on another one.
fn run_loop(server: Server, event_loop: RunnableLoop, channel: &Channel, hooks: &Hooks<'_>) -> i32 {
    thread::scope(|scope| {
        let (mut server, mut serving) = (Some(server), None);
        let mut serve = || {
            let server = server.take().expect("a loop begins to serve once");
            let run = move || {
                let ended = server.run();
                match &ended {
                    // The main thread does not come back from the application.
                    Ok(ended) if ended.stuck_threads > 0 => {
                        conclude(Ok(*ended), channel, hooks);
                    }
                    _ => {}
                }
                ended
            };
            let thread = thread::Builder::new().name("mp-lifecycle".to_owned());
            serving = Some(thread.spawn_scoped(scope, run)?);
            Ok(())
        };
        // The main thread does not come back from the application.
        let give_up = |failure: &Failure| std::process::exit(fail(channel, failure));
        let ran = event_loop.run(&mut serve, &give_up);
        match (ran, serving) {
            (Err(failure), None) => fail(channel, &failure),
            (ran, Some(serving)) => {
                if let Err(failure) = ran {
                    Message::from(failure).say();
                }
                match serving.join() {
                    Ok(ended) => conclude(ended, channel, hooks),
                    Err(_) => COULD_NOT,
                }
            }
            (Ok(()), None) => COULD_NOT,
        }
    })
}

/// Says how the server has ended, and has the process end in time.
fn conclude(ended: Result<Ended, StartFault>, channel: &Channel, hooks: &Hooks<'_>) -> i32 {
    match ended {
        Ok(ended) => {
            let notice = ProcessEvent::Drained {
                cut: ended.cut,
                stuck_threads: ended.stuck_threads,
            };
            // Without a supervisor nobody wants to know.
            let _ = channel.send_now(&notice, &[]);
            let is_in_hook = Arc::new(AtomicBool::new(hooks.has(HookMoment::WorkerExit)));
            if is_in_hook.load(Ordering::Relaxed) || ended.stuck_threads == 0 {
                leave_within(&ended, Arc::clone(&is_in_hook));
            }
            if let Err(failure) = hooks.call(HookMoment::WorkerExit) {
                Message::from(failure).say();
            }
            is_in_hook.store(false, Ordering::Relaxed);
            if ended.stuck_threads > 0 {
                // An orderly end would take the interpreter away under their feet.
                std::process::exit(ended.exit_code)
            }
            ended.exit_code
        }
        Err(fault) => fail(channel, &Failure::from(&fault)),
    }
}

/// The last hook, and what the interpreter does at its end, such as waiting for threads that the application started,
/// must not take longer than what is left of the drain time.
fn leave_within(ended: &Ended, is_in_hook: Arc<AtomicBool>) {
    let time = ended.time_left.max(LEAVING_MIN);
    let exit_code = ended.exit_code;
    let leave = move || {
        thread::sleep(time);
        let what = match is_in_hook.load(Ordering::Relaxed) {
            true => "`hooks.worker_exit`",
            false => "threads of the application",
        };
        let text = "still running at the end of `drain_timeout`: left without waiting";
        Message::new(what, text).say();
        std::process::exit(exit_code);
    };
    // Without the thread the process ends whenever the interpreter does.
    let _ = thread::Builder::new()
        .name("mp-process".to_owned())
        .spawn(leave);
}

/// Tells the supervisor why this process cannot go on; gives its exit code.
pub(crate) fn fail(channel: &Channel, failure: &Failure) -> i32 {
    let file = payload::to_file(failure);
    let told = file.and_then(|file| channel.send(&ProcessEvent::Failed, &[file.as_fd()]));
    if told.is_err() {
        crate::message::talk(&failure.text());
    }
    COULD_NOT
}
