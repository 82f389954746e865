//! The `mmscale` binary.
fn main() {}
