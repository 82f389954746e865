//! Page tables and translations, on CPUs that are stepped by the tests.

mod broadcast;
mod common;
mod failures;
mod gather;
mod random;
mod rules;
mod shootdown;
mod tlb;
mod vmap;
