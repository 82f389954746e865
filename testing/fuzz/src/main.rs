//! The command that `cargo xtask fuzz` starts.

fn main() -> std::process::ExitCode {
    mmscale_fuzz::command()
}
