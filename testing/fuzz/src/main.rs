//! The command that `cargo xtask fuzz` starts.

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    mmscale_fuzz::command(&args.iter().map(String::as_str).collect::<Vec<_>>())
}
