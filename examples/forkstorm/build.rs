//! Passes the identity of the sources to the program, for the documents of its runs.

fn main() {
    mmscale_identity::emit("FORKSTORM_SOURCES", &["src", "build.rs", "Cargo.toml"]);
}
