//! The scripts of `scripts/` and `scripts/cases/`, and those next to studies, compiled in.

macro_rules! script {
    ($name:literal) => {
        (concat!($name, ".mms"), include_str!(concat!("scripts/", $name, ".mms")))
    };
}

macro_rules! case {
    ($name:literal) => {
        (concat!($name, ".mms"), include_str!(concat!("scripts/cases/", $name, ".mms")))
    };
}

/// Names of files and their texts.
pub const SCRIPTS: [(&str, &str); 35] = [
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
    case!("brk2"),
    case!("malloc2"),
    case!("mapped-file"),
    case!("small-allocs"),
    case!("stress-bigheap"),
    case!("stress-fault"),
    case!("stress-madvise"),
    case!("stress-memfd"),
    case!("stress-mincore"),
    case!("stress-mlock"),
    case!("stress-mmap"),
    case!("stress-mmapfork"),
    case!("stress-mmapmany"),
    case!("stress-mprotect"),
    case!("stress-numa"),
    case!("stress-rmap"),
    case!("stress-tlb-shootdown"),
    case!("usemem"),
];

macro_rules! like {
    ($study:literal) => {
        ($study, include_str!(concat!($study, "/", $study, ".mms")))
    };
}

/// Scripts that make the calls of studies, for programs in C (`mmscale kernel reproduce`).
pub(crate) const LIKE: [(&str, &str); 5] =
    [like!("vmstat"), like!("churn"), like!("pcp"), like!("reap"), like!("ipi")];
