//! The promises of an allocator of frames, on threads, for each way in which this one keeps free
//! memory. The 22 cases are those of LLFree's integration tests (`eval/tests/integration.rs`, June
//! 2026), in words of our own.

mod cases;
mod host;
