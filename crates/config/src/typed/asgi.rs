//! The interface of an application, and how an ASGI application runs.
//!
//! Values alone.

use telemetry::Nanos;

defaults! {
    /// How ASGI applications run.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct AsgiConfig {
        /// The event loop.
        pub event_loop: EventLoopKind,
        /// Requests inside the applications of one process.
        pub concurrency: Concurrency = Concurrency { min: 100, max: 1000 },
        /// Whether lifespan events are sent.
        pub lifespan: LifespanMode,
        /// How long the startup may take.
        pub lifespan_timeout: Nanos = Nanos::from_secs(30),
        /// A step of a request that blocks the loop for longer is logged.
        pub slow_step: Option<Nanos> = Some(Nanos::from_ms(100)),
        /// What `send()` to a client that has gone does.
        pub http_spec: HttpSpec,
        /// Whether an application begins with a request only when its body is complete.
        pub buffers_requests: bool,
        /// WebSocket connections.
        pub websocket: WebSocketConfig,
        /// Some pool has a number of threads that was written, and not the default.
        pub has_threads: bool,
    }
}

/// Requests inside an event loop; more wait in their pools' queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concurrency {
    /// So many in any case.
    pub min: usize,
    /// So many while the loop keeps up.
    pub max: usize,
}

defaults! {
    /// Bounds and times of WebSocket connections.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct WebSocketConfig {
        /// Open connections of a process, and handshakes under way; `None`: no bound.
        pub open_max: Option<usize> = Some(10_000),
        /// Bytes of a message of the client, inflated.
        pub message_bytes_max: usize = 16 << 20,
        /// A client that sends nothing for so long is asked for a sign of life; `None`: never.
        pub ping_interval: Option<Nanos> = Some(Nanos::from_secs(20)),
        /// How long it has to answer.
        pub ping_timeout: Nanos = Nanos::from_secs(20),
        /// Whether messages are compressed for clients that offer it.
        pub is_deflated: bool = true,
        /// A process that ends closes its connections over so long.
        pub drain: Nanos = Nanos::from_secs(30),
        /// How long an application has behind the end of its connection.
        pub close_timeout: Nanos = Nanos::from_secs(10),
    }
}

/// The interface between server and application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interface {
    /// To be found out from the application.
    #[default]
    Auto,
    /// ASGI 3: a callable with three arguments that gives an awaitable.
    Asgi,
    /// ASGI 2: a callable that gives a callable.
    Asgi2,
    /// WSGI (PEP 3333).
    Wsgi,
}

/// A version of the specification for HTTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpSpec {
    /// `send()` to a client that has gone does nothing.
    #[default]
    V2_3,
    /// It raises an `OSError`.
    V2_5,
}

impl HttpSpec {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::V2_3 => "2.3",
            Self::V2_5 => "2.5",
        }
    }
}

/// Which event loop runs an ASGI application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventLoopKind {
    /// uvloop where it is installed.
    #[default]
    Auto,
    /// That of the standard library.
    Asyncio,
    /// uvloop.
    Uvloop,
}

/// Whether lifespan events are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LifespanMode {
    /// Yes, unless the application does not know them.
    #[default]
    Auto,
    /// Yes; an application that does not know them is not served.
    On,
    /// No.
    Off,
}
