//! The simulated machine, tested through the trait that the memory manager sees.

mod allocator;
mod basics;
mod blame;
mod calls;
mod checks;
mod common;
mod disturbed;
mod example;
mod ledger;
mod limbo;
mod lru;
mod misses;
mod oracle;
mod pageblocks;
mod paging;
mod plugging;
mod random;
mod replayed;
mod sections;
mod sleeping;
mod space;
mod speed;
mod swap;
mod timeline;
