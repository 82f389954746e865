//! The VMA tree and the VMAs by id.

mod failures;
mod finder;
mod model;
mod random;
mod rules;
mod slots;
