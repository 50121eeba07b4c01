//! The plain binary: everything but Python.

#![forbid(unsafe_code)]

use std::process::ExitCode;

#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let code = cli::run(std::env::args_os().collect(), None);
    ExitCode::from(u8::try_from(code).unwrap_or(2))
}
