//! The frame allocator, compared with a simple oracle: long seeded runs, and short random sequences
//! that are shrunk to the relevant steps when one fails.

mod census;
mod contig;
mod drains;
mod holes;
mod interrupts;
mod isolation;
mod misuse;
mod oracle;
mod parts;
mod posted;
mod premerge;
mod query;
mod random;
mod reserve;
mod sequences;
mod superpageblocks;
