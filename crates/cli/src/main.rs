//! The `mmscale` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    mmscale_cli::main(mmscale_studies::all())
}
