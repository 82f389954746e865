//! Tells the program which sources it is built from, for the records of runs.

fn main() {
    mmscale_identity::emit(
        "MMSCALE_SOURCES",
        &[
            "../../crates/*/src",
            "../../crates/*/build.rs",
            "../../crates/*/Cargo.toml",
            "../../crates/linux/bpf",
            "../../machines",
            "../../studies/Cargo.toml",
            "../../studies/*.rs",
            "../../studies/*/*.rs",
            "../../studies/*/study.toml",
            "../../.cargo",
            "../../Cargo.toml",
            "../../Cargo.lock",
        ],
    );
}
