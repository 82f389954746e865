//! A deterministic many-core machine in virtual time.

pub mod profile;
