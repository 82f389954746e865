//! Small scenarios in which the order of a few steps on different CPUs matters.

mod blockmap;
mod calls;
mod claims;
mod drains;
mod litmus;
mod locks;
mod lru;
mod migrate;
mod numbers;
mod owned;
mod pages;
mod planted;
mod rcu;
mod reaped;
mod remote;
mod requests;
mod reverse;
mod space;
mod stacks;
mod stats;
mod swap;
mod threads;
mod tlb;
mod vmap;
mod weak;
mod work;
mod zsmalloc;

#[path = "../../../../crates/mm/tests/reclaim/paged.rs"]
#[expect(dead_code, reason = "other tests use more of it")]
mod paged;
