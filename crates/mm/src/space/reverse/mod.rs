//! From a folio to the pages that map it, and the locks under which operations on VMAs change that.

mod links;
mod rmap;

pub(super) use rmap::Moved;
