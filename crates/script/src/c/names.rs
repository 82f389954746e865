//! Names of variables and parameters in C.

/// Words that a variable of a script cannot have as its name: those of C and of the program around
/// it.
const TAKEN: &[&str] = &[
    // C, and macros of GNU C.
    "asm",
    "auto",
    "bool",
    "case",
    "char",
    "const",
    "default",
    "do",
    "double",
    "enum",
    "extern",
    "float",
    "goto",
    "if",
    "inline",
    "int",
    "linux",
    "long",
    "register",
    "restrict",
    "short",
    "signed",
    "sizeof",
    "static",
    "struct",
    "switch",
    "typedef",
    "typeof",
    "union",
    "unix",
    "unsigned",
    "void",
    "volatile",
    "else",
    "for",
    "while",
    "return",
    "break",
    "continue",
    // Functions and variables of the program.
    "allowed",
    "arg",
    "bind_to",
    "by_key",
    "check_pages",
    "check_tasks",
    "children",
    "compute",
    "count",
    "cpu",
    "cpus",
    "cpu_ids",
    "err",
    "errx",
    "file_of",
    "find_places",
    "find_cpus",
    "key_of",
    "join_thread",
    "kill",
    "mark",
    "madvise",
    "main",
    "max",
    "mbind",
    "measure",
    "memfd_create",
    "min",
    "mincore",
    "mlock2",
    "mmap",
    "mprotect",
    "mremap",
    "msync",
    "munlock",
    "munmap",
    "nap",
    "near",
    "next_in_order",
    "next_cpu",
    "next_random",
    "nodes",
    "number_in",
    "now",
    "ok",
    "on_cores",
    "on_nodes",
    "oom_score_adj",
    "pidfd_open",
    "place",
    "pin",
    "present_pages",
    "posix_fadvise",
    "process_mrelease",
    "rate",
    "read_page",
    "read_pages",
    "realtime",
    "rng",
    "rnd",
    "running",
    "self",
    "shared",
    "sleep_for",
    "sort_by",
    "spread",
    "start",
    "start_child",
    "start_thread",
    "syscall",
    "team",
    "total",
    "usage",
    "wait",
    "wait_for",
    "wait_for_all",
    "write_page",
    "write_pages",
    "close",
    "errno",
    "environ",
];

/// Returns the name of a variable.
pub(super) fn of_variable(name: &str) -> String {
    // Names in capitals may be macros.
    let is_macro = name.len() > 1 && !name.chars().any(|letter| letter.is_ascii_lowercase());
    if TAKEN.contains(&name) || is_macro { format!("{name}_") } else { name.to_owned() }
}

/// Beginnings of macros of the headers that a program includes, or of its own.
const MACROS: [&str; 26] = [
    "_", "AT_", "BUFSIZ", "CLONE_", "CPU_", "DIV_", "E", "F_", "FD_", "GNU", "LONG_", "L_",
    "MADV_", "MAP_", "MAX_", "MCL_", "MFD_", "MLOCK_", "MPOL_", "MREMAP_", "NSEC_", "NULL", "PAGE",
    "PR_", "PROT_", "RAND_MAX",
];
const MORE_MACROS: [&str; 12] =
    ["P_", "RLIM", "RWF_", "SCHED_", "SEEK_", "SIG", "STD", "SYS_", "TMP_", "W", "_", "PTHREAD_"];

/// Returns the name of a parameter: a macro. `others` are those of the parameters before it.
pub(super) fn of_parameter(name: &str, others: &[String]) -> String {
    let mut upper = name.to_ascii_uppercase();
    let is_taken = |name: &str| {
        let begins = |begin: &&str| name.starts_with(*begin);
        let ours = ["BYTES", "EACH", "EAGER", "EXTENT", "EXTENTS", "PAGES", "WORK", "WRITES"];
        !ours.contains(&name) && (MACROS.iter().chain(&MORE_MACROS).any(begins))
    };
    if is_taken(&upper) {
        upper = format!("N_{upper}");
    }
    while others.contains(&upper) {
        upper.push('_');
    }
    upper
}

#[cfg(test)]
mod tests {
    use super::{of_parameter, of_variable};

    #[test]
    fn names_do_not_meet_those_of_c() {
        let names = ["mem", "now", "linux", "int", "EOF", "x", "N"].map(of_variable);
        assert_eq!(names, ["mem", "now_", "linux_", "int_", "EOF_", "x", "N"]);
        let names =
            ["bytes", "page", "exit", "pages", "sigint"].map(|name| of_parameter(name, &[]));
        assert_eq!(names, ["BYTES", "N_PAGE", "N_EXIT", "PAGES", "N_SIGINT"]);
        assert_eq!(of_parameter("A", &["A".to_owned()]), "A_");
    }
}
