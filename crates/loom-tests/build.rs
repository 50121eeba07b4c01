//! Compiles this crate with `cfg(loom)`: the server's files then leave out their own tests.
//!
//! In RUSTFLAGS the flag would reach every library, and a compilation of each that nothing else can use.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cfg=loom");
}
