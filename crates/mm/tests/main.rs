//! All tests of the memory manager, on CPUs that are stepped by the tests. They are one program, so
//! that code that is generic over the machine is compiled only once.

mod address;
mod ages;
mod calls;
mod lru;
mod reclaim;
mod space;
mod swap;
mod table;
