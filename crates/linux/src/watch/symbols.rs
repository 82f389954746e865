//! The kernel's functions by address, and what they are called in this project.

use std::collections::BTreeMap;
use std::fs;

/// Compilers leave other names behind than sources have: a function is inlined into its only
/// caller, or a copy of it has a suffix. Each row: the name that sources have, then names that
/// stand for it where it has none of its own. A stack that holds one of those holds the function.
const ALIASES: [(&str, &[&str]); 10] = [
    ("rmqueue_bulk", &["__rmqueue_pcplist", "rmqueue_pcplist"]),
    ("folio_batch_move_lru", &["lru_add_drain_cpu", "__folio_batch_add_and_move"]),
    ("zap_pte_range", &["unmap_page_range"]),
    ("free_pcppages_bulk", &["free_pcp_pages_bulk"]),
    ("csd_lock_wait", &["smp_call_function_many_cond", "smp_call_function_single"]),
    ("__page_cache_release", &["page_cache_release"]),
    ("decay_pcp_high", &["refresh_cpu_vm_stats"]),
    ("exit_mmap", &["__mmput", "mmput"]),
    (
        "__do_sys_process_mrelease",
        &[
            "__se_sys_process_mrelease",
            "__x64_sys_process_mrelease",
            "__arm64_sys_process_mrelease",
        ],
    ),
    ("oom_reap_task_mm", &["oom_reaper"]),
];

/// Functions that are on every path to a lock, and say nothing of it.
const LOCKING: [&str; 12] = [
    "native_queued_spin_lock_slowpath",
    "queued_spin_lock_slowpath",
    "__pv_queued_spin_lock_slowpath",
    "_raw_spin_lock",
    "rwsem_",
    "down_read",
    "down_write",
    "__down_",
    "__mutex_lock",
    "mutex_lock",
    "__lock_text_start",
    "queued_",
];

/// The kernel's functions.
#[derive(Debug, Default)]
pub struct Symbols {
    by_address: BTreeMap<u64, String>,
}

impl Symbols {
    /// Those of `/proc/kallsyms`. None at all where addresses are hidden.
    pub fn of_kernel() -> Self {
        Self::parse(&fs::read_to_string("/proc/kallsyms").unwrap_or_default())
    }
    fn parse(text: &str) -> Self {
        let function = |line: &str| {
            let mut fields = line.split_whitespace();
            let (at, kind, name) = (fields.next()?, fields.next()?, fields.next()?);
            let at = u64::from_str_radix(at, 16).ok().filter(|&at| at != 0)?;
            "tTwW".contains(kind).then(|| (at, plain(name).to_owned()))
        };
        Self { by_address: text.lines().filter_map(function).collect() }
    }
    /// Whether there are any.
    pub fn is_empty(&self) -> bool {
        self.by_address.is_empty()
    }
    /// Whether a function, by the name that sources have, can be found on stacks: by itself, or by
    /// another that stands for it.
    pub fn can_find(&self, function: &str) -> bool {
        let has = |name: &str| self.by_address.values().any(|known| known == name);
        has(function) || stand_ins(function).any(has)
    }
    /// The function around an address.
    pub fn name(&self, at: u64) -> Option<&str> {
        self.by_address.range(..=at).next_back().map(|(_, name)| name.as_str())
    }
    /// A stack from the outermost function to the one that wanted the lock, locking left out.
    pub fn path(&self, frames: &[u64]) -> Vec<String> {
        let names = frames.iter().filter_map(|&at| self.name(at));
        let mut path: Vec<String> = names
            .skip_while(|name| is_locking(name))
            .filter(|name| !is_tracing(name))
            .map(str::to_owned)
            .collect();
        path.reverse();
        path
    }
}

fn stand_ins(function: &str) -> impl Iterator<Item = &'static str> {
    let row = ALIASES.iter().find(|(name, _)| *name == function);
    row.map_or(&[][..], |(_, others)| others).iter().copied()
}

/// Without what compilers append.
fn plain(name: &str) -> &str {
    name.split_once('.').map_or(name, |(name, _)| name)
}

fn is_locking(name: &str) -> bool {
    LOCKING.iter().any(|prefix| name.starts_with(prefix)) || is_tracing(name)
}

/// The tracepoint's and the program's own frames.
fn is_tracing(name: &str) -> bool {
    ["bpf_", "__bpf_", "trace_", "__traceiter_", "__cfi_"].iter().any(|p| name.starts_with(p))
}

/// Whether a function is on a path, under its own name or by one that stands for it.
pub(super) fn passes(path: &[String], function: &str) -> bool {
    let on = |name: &str| path.iter().any(|step| step == name);
    on(function) || stand_ins(function).any(on)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
ffffffff81000000 T _stext
ffffffff81000100 t native_queued_spin_lock_slowpath
ffffffff81000200 t __rmqueue_pcplist.constprop.0
ffffffff81000300 T get_page_from_freelist
ffffffff81000400 D jiffies
";

    #[test]
    fn a_stack_becomes_a_path_without_the_lock_itself() {
        let symbols = Symbols::parse(TEXT);
        let path =
            symbols.path(&[0xffff_ffff_8100_0108, 0xffff_ffff_8100_0210, 0xffff_ffff_8100_0399]);
        assert_eq!(path, ["get_page_from_freelist", "__rmqueue_pcplist"]);
        assert!(passes(&path, "rmqueue_bulk"), "its only caller stands for it");
        assert!(!passes(&path, "free_pcppages_bulk"));
        assert!(symbols.can_find("rmqueue_bulk") && !symbols.can_find("zap_pte_range"));
    }

    #[test]
    fn hidden_addresses_are_none() {
        assert!(Symbols::parse("0000000000000000 T _stext\n").is_empty());
    }
}
