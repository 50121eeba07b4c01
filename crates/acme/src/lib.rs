//! Automatic certificates: an ACME client and a local certificate authority over one storage folder.
//!
//! Takes a [`Plan`] (names, directory, storage folder) and gives certificates, keys and answers to challenges as
//! files in that folder, and [`Report`]s of how each name stands. [`run`] is the main loop of a process of its own:
//! it waits for networks and disks, so no thread that serves may call it. The processes that serve read
//! certificates from the folder, whose layout [`storage`] documents, and are told of challenges.
//!
//! ```text
//!             schedule ── due? ──► lock ──► issuance (order, challenge, CSR) ──► storage ──► served
//!               ▲   ▲                         │    │
//!   renewal_info┘   └── retry ◄── fault ──────┘    └──► challenges ──► answered by every process
//! ```
//!
//! Knows no server, no configuration file and no Python.

#![forbid(unsafe_code)]

mod account;
mod bundle;
pub mod challenges;
mod directory_client;
mod fault;
mod first_certificate;
mod issuance;
mod local_authority;
mod lock;
mod managed;
mod name;
mod order_limit;
mod order_note;
mod plan;
mod renewal;
mod renewal_info;
mod report;
mod retry;
mod schedule;
pub mod storage;
mod trust;

pub use bundle::CertificateFacts;
pub use directory_client::check_roots;
pub use first_certificate::{PLACEHOLDER_NAME, ensure_certificates, is_kept};
pub use local_authority::{ROOT_NAME, root};
pub use name::is_local;
pub use plan::{Authority, ChallengeKind, Directory, NAMES_LEN_MAX, Plan};
pub use renewal::run;
pub use report::{NameState, Report};
pub use trust::{TrustChange, TrustFault, TrustStore};
