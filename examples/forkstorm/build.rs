//! Tells the program which sources it is built from, for the documents of its runs.

fn main() {
    mmscale_identity::emit("FORKSTORM_SOURCES", &["src", "build.rs", "Cargo.toml"]);
}
