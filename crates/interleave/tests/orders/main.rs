//! Small scenarios in which the order of a few steps on different CPUs matters.

mod locks;
mod lru;
mod pages;
mod planted;
mod rcu;
mod tlb;
mod work;
