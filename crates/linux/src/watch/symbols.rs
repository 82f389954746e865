//! The kernel's functions by address, and their names in this project.

use mmscale_document::{path_of, plain_function, stand_ins, taken_through};
use std::collections::BTreeMap;
use std::fs;

/// The kernel's functions.
#[derive(Debug, Default)]
pub struct Symbols {
    by_address: BTreeMap<u64, String>,
}

impl Symbols {
    /// Reads `/proc/kallsyms`. The result is empty if addresses are hidden.
    pub fn of_kernel() -> Self {
        Self::parse(&fs::read_to_string("/proc/kallsyms").unwrap_or_default())
    }
    fn parse(text: &str) -> Self {
        let function = |line: &str| {
            let mut fields = line.split_whitespace();
            let (at, kind, name) = (fields.next()?, fields.next()?, fields.next()?);
            let at = u64::from_str_radix(at, 16).ok().filter(|&at| at != 0)?;
            "tTwW".contains(kind).then(|| (at, plain_function(name).to_owned()))
        };
        Self { by_address: text.lines().filter_map(function).collect() }
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_address.is_empty()
    }
    /// Whether a function, by its name in the sources, can be found on stacks: itself, or another
    /// one that stands for it.
    pub fn can_find(&self, function: &str) -> bool {
        let has = |name: &str| self.by_address.values().any(|known| known == name);
        has(function) || stand_ins(function).any(has)
    }
    /// Returns the function around an address.
    pub fn name(&self, at: u64) -> Option<&str> {
        self.by_address.range(..=at).next_back().map(|(_, name)| name.as_str())
    }
    /// Returns a stack from the outermost function to the one that requested the lock, without the
    /// locking functions.
    pub fn path(&self, frames: &[u64]) -> Vec<String> {
        path_of(frames.iter().filter_map(|&at| self.name(at)))
    }
    /// Returns the locking function with which the path of a stack requested the lock.
    pub fn taken_through(&self, frames: &[u64]) -> Option<&str> {
        taken_through(frames.iter().filter_map(|&at| self.name(at)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmscale_document::passes;

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
        let taken = symbols.taken_through(&[0xffff_ffff_8100_0108, 0xffff_ffff_8100_0210]);
        assert_eq!(taken, Some("native_queued_spin_lock_slowpath"));
        assert!(passes(&path, "rmqueue_bulk"), "its only caller stands for it");
        assert!(!passes(&path, "free_pcppages_bulk"));
        assert!(symbols.can_find("rmqueue_bulk") && !symbols.can_find("zap_pte_range"));
    }

    #[test]
    fn hidden_addresses_are_none() {
        assert!(Symbols::parse("0000000000000000 T _stext\n").is_empty());
    }
}
