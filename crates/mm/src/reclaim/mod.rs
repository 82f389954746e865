//! Reclaim: memory back from programs that have not used it lately.

mod rmap;

pub use rmap::{References, Rmap, UnmapTo};
