//! The frame allocator against a simple oracle: long seeded runs, and short random sequences that
//! shrink to what matters when one fails.

mod census;
mod isolation;
mod misuse;
mod oracle;
mod posted;
mod random;
mod reserve;
mod sequences;
