//! Protocols on weak memory: what one CPU leaves in memory that is no atomic is there for the CPU
//! that comes after it. A [`Plain`](mmscale_interleave::Plain) value is the data that a protocol
//! protects. Each test names the orderings that it is about.

mod blockmap;
mod calls;
mod locks;
mod lru;
mod rcu;
mod requests;
mod tlb;
