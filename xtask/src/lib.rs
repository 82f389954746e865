//! The workspace's own checks, as a library so that `cargo test --workspace` runs them, too.

use std::path::PathBuf;

pub mod differ;
pub mod dist;
pub mod fuzz;
pub mod host_cost;
pub mod kernels;
pub mod metal;
pub mod no_std;
pub mod objects;
pub mod pages;
pub mod plain;
pub mod planted;
pub mod tables;
pub mod takers;
pub mod tidy;

/// Returns the workspace's root: the folder above this package.
pub fn root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let here = here.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")));
    here.parent().map_or(here.clone(), PathBuf::from)
}
