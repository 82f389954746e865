//! Passes the identity of the sources to the program, for the documents of runs.

fn main() {
    let mut sources = vec![
        "../../crates/*/src",
        "../../crates/*/build.rs",
        "../../crates/*/Cargo.toml",
        "../../crates/linux/bpf",
        "../../machines",
        "../../studies/Cargo.toml",
        "../../studies/*.rs",
        "../../studies/*/*.rs",
        "../../scripts/*.mms",
        "../../.cargo",
        "../../Cargo.toml",
        "../../Cargo.lock",
    ];
    // A development build reads these files at run time, and its documents contain their hashes.
    if std::env::var_os("CARGO_CFG_DEBUG_ASSERTIONS").is_none() {
        sources.push("../../studies/*/study.toml");
    }
    mmscale_identity::emit("MMSCALE_SOURCES", &sources);
}
