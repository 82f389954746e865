//! The scripts of `scripts/`, compiled in.

macro_rules! script {
    ($name:literal) => {
        (concat!($name, ".mms"), include_str!(concat!("scripts/", $name, ".mms")))
    };
}

/// Names of files and their texts.
pub const SCRIPTS: [(&str, &str); 17] = [
    script!("page_fault1"),
    script!("page_fault2"),
    script!("page_fault3"),
    script!("mmap1"),
    script!("mmap2"),
    script!("malloc1"),
    script!("brk1"),
    script!("tlb_flush1"),
    script!("tlb_flush2"),
    script!("tlb_flush3"),
    script!("fork1"),
    script!("forkstorm"),
    script!("stress-mremap"),
    script!("stress-vm"),
    script!("stress-fork"),
    script!("purge"),
    script!("shell-storm"),
];
