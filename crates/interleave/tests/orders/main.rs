//! Small scenarios in which the order of a few steps on different CPUs matters.

mod locks;
mod pages;
mod planted;
mod rcu;
mod work;
