//! The `mmscale` binary.

use std::process::ExitCode;

#[global_allocator]
static MEMORY: mmscale_cli::Memory = mmscale_cli::Memory;

fn main() -> ExitCode {
    mmscale_cli::main(mmscale_studies::all())
}
