//! The `mmscale` binary.

use std::process::ExitCode;

#[global_allocator]
static MEMORY: mmscale::Memory = mmscale::Memory;

fn main() -> ExitCode {
    mmscale::main(mmscale_studies::all())
}
