//! The `mmscale` binary.

use std::process::ExitCode;

use mmscale_study::Registry;

fn main() -> ExitCode {
    mmscale_cli::main(Registry::shipped())
}
