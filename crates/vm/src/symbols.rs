//! The functions and variables of a kernel, by address, and the kinds of functions that the plugin
//! has to know.

use flate2::read::DeflateDecoder;
use std::collections::HashMap;
use std::io::{self, Read};

/// The most bytes of a kernel's symbols.
const MAX_BYTES: u64 = 64 << 20;
/// More than the largest variable of a kernel has.
const VARIABLE_BYTES: u64 = 16 << 20;

/// The kind of a function, for the plugin; the numbers are those of its `enum kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Plain = 0,
    /// It returns with a lock.
    Acquire = 1,
    Release = 2,
    /// The entry of an interrupt.
    Interrupt = 3,
    /// The entry of another exception.
    Exception = 4,
    /// It goes to another task.
    Switch = 5,
    /// It makes a hold of a semaphore that of a reader.
    Downgrade = 6,
    /// The entry of an interrupt by which another CPU calls.
    Called = 7,
    /// It sends such interrupts.
    Send = 8,
    /// The entry of the interrupt of a CPU's timer.
    Timer = 9,
    /// It runs RCU callbacks.
    Batch = 10,
}

/// Functions that return with a lock (include/linux/spinlock.h, rwsem.h, mutex.h).
const ACQUIRES: &[&str] = &[
    "_raw_spin_lock",
    "_raw_spin_lock_bh",
    "_raw_spin_lock_irq",
    "_raw_spin_lock_irqsave",
    "_raw_spin_trylock",
    "_raw_spin_trylock_bh",
    "_raw_read_lock",
    "_raw_read_lock_irq",
    "_raw_read_lock_irqsave",
    "_raw_write_lock",
    "_raw_write_lock_irq",
    "_raw_write_lock_irqsave",
    "down_read",
    "down_read_interruptible",
    "down_read_killable",
    "down_read_trylock",
    "down_write",
    "down_write_killable",
    "down_write_trylock",
    "mutex_lock",
    "mutex_lock_interruptible",
    "mutex_lock_killable",
    "mutex_trylock",
];

/// The first words of functions that release one.
const RELEASES: &[&str] = &[
    "_raw_spin_unlock",
    "_raw_read_unlock",
    "_raw_write_unlock",
    "up_read",
    "up_write",
    "mutex_unlock",
];

impl Kind {
    fn of(name: &str) -> Self {
        let begins = |first: &&str| name.starts_with(*first);
        if ACQUIRES.contains(&name) {
            Self::Acquire
        } else if RELEASES.iter().any(begins) {
            Self::Release
        } else if name.starts_with("asm_sysvec_call_function") {
            Self::Called
        } else if name.starts_with("native_send_call_func_") {
            Self::Send
        } else if name == "asm_sysvec_apic_timer_interrupt" {
            Self::Timer
        } else if name == "rcu_do_batch" {
            Self::Batch
        } else if name.starts_with("asm_sysvec_") || name == "asm_common_interrupt" {
            Self::Interrupt
        } else if name.starts_with("asm_exc_") {
            Self::Exception
        } else if name == "__schedule" {
            Self::Switch
        } else if name == "downgrade_write" {
            Self::Downgrade
        } else {
            Self::Plain
        }
    }
}

/// Kinds of symbols in /proc/kallsyms: functions and variables.
const CODE: [&str; 4] = ["t", "T", "w", "W"];
const VARIABLES: [&str; 6] = ["d", "D", "b", "B", "r", "R"];

/// Returns the lines of functions and variables of the text of /proc/kallsyms, without those of
/// modules: they have a fourth word.
pub(crate) fn of_kernel(kallsyms: &str) -> String {
    let is_of_kernel = |line: &&str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        matches!(words[..], [_, kind, _] if CODE.contains(&kind) || VARIABLES.contains(&kind))
    };
    kallsyms.lines().filter(is_of_kernel).flat_map(|line| [line, "\n"]).collect()
}

/// The functions of a kernel, by address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    addresses: Vec<u64>,
    names: Vec<String>,
    /// Variables of the kernel, by address.
    variables: Vec<(u64, String)>,
}

impl Table {
    /// Reads what a guest sent.
    ///
    /// # Errors
    /// It is broken, or has no addresses: a kernel may hide them.
    pub(crate) fn inflate(deflated: &[u8]) -> io::Result<Self> {
        let mut text = String::new();
        DeflateDecoder::new(deflated).take(MAX_BYTES).read_to_string(&mut text)?;
        let table = Self::of(&text);
        match table.addresses.first() {
            Some(1..) => Ok(table),
            _ => Err(io::Error::other("the kernel shows no addresses in /proc/kallsyms")),
        }
    }

    pub(crate) fn of(text: &str) -> Self {
        let (mut rows, mut variables) = (Vec::new(), Vec::new());
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let (Some(address), Some(kind), Some(name)) =
                (words.next(), words.next(), words.next())
            else {
                continue;
            };
            let Ok(address) = u64::from_str_radix(address, 16) else { continue };
            match CODE.contains(&kind) {
                true => rows.push((address, name)),
                false => variables.push((address, name.to_owned())),
            }
        }
        variables.sort();
        // Of names of one place, the one that the plugin has to know, then the plainest.
        rows.sort_by_key(|(address, name)| {
            (*address, Kind::of(name) == Kind::Plain, name.contains('.'), name.len(), *name)
        });
        rows.dedup_by_key(|(address, _)| *address);
        Self {
            addresses: rows.iter().map(|(address, _)| *address).collect(),
            names: rows.iter().map(|(_, name)| (*name).to_owned()).collect(),
            variables,
        }
    }

    /// Returns the table as the plugin reads it: the number of rows, then the address and the kind
    /// of each.
    pub(crate) fn for_plugin(&self) -> Vec<u8> {
        let rows = self.addresses.iter().zip(&self.names);
        let words = rows.flat_map(|(address, name)| [*address, Kind::of(name) as u64]);
        let all = std::iter::once(self.addresses.len() as u64).chain(words);
        all.flat_map(u64::to_ne_bytes).collect()
    }

    /// Returns the name of a row, without what a compiler put behind it; `?` for none.
    pub(crate) fn name(&self, row: i32) -> &str {
        let name = self.full_name(row);
        name.split('.').next().unwrap_or(name)
    }

    /// Returns the variable of the kernel at an address; `None` for other memory.
    pub(crate) fn variable(&self, address: u64) -> Option<&str> {
        let after = self.variables.partition_point(|(at, _)| *at <= address);
        // Behind the last one is other memory, and so it is far behind another.
        self.variables.get(after)?;
        let (at, name) = self.variables[..after].last()?;
        (address - at < VARIABLE_BYTES).then_some(name)
    }

    /// Returns the variable of the kernel at or before an address of its image. Some kernels list
    /// variables as functions.
    pub(crate) fn variable_near(&self, address: u64) -> Option<&str> {
        let after = self.variables.partition_point(|(at, _)| *at <= address);
        let variable = self.variables[..after].last().map(|(at, name)| (*at, name.as_str()));
        let row = self.addresses.partition_point(|at| *at <= address).checked_sub(1);
        let listed = row.map(|row| (self.addresses[row], self.names[row].as_str()));
        variable.max(listed).map(|(_, name)| name)
    }

    /// Returns the address of a variable, which some kernels list as a function.
    pub(crate) fn address_of(&self, variable: &str) -> Option<u64> {
        let found = self.variables.iter().find(|(_, name)| name == variable);
        let listed = || Some(self.addresses[self.names.iter().position(|name| name == variable)?]);
        found.map(|(address, _)| *address).or_else(listed)
    }

    /// Returns the address of a row; 0 for none.
    pub(crate) fn address(&self, row: i32) -> u64 {
        let address = usize::try_from(row).ok().and_then(|row| self.addresses.get(row));
        address.copied().unwrap_or(0)
    }

    /// Returns the whole name of a row; `?` for none.
    pub(crate) fn full_name(&self, row: i32) -> &str {
        let name = usize::try_from(row).ok().and_then(|row| self.names.get(row));
        name.map_or("?", String::as_str)
    }

    /// Whether a function is among the rows.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }

    /// Returns the rows of each name; a function and its parts are one.
    pub(crate) fn by_name(&self) -> HashMap<&str, Vec<usize>> {
        let mut rows: HashMap<&str, Vec<usize>> = HashMap::new();
        for row in 0..self.names.len() {
            rows.entry(self.name(row as i32)).or_default().push(row);
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const TEXT: &str = "0000000000000000 A fixed_percpu_data\n\
        ffffffff81000100 T _raw_spin_lock\nffffffff81000000 T _text\nffffffff81000000 T start\n\
        ffffffff81000200 t part.isra.0\nffffffff81000200 D data\n\
        ffffffff81000300 T _raw_spin_unlock_irqrestore\nffffffffc0000000 t f\t[module]\n";

    fn inflated(text: &str) -> io::Result<Table> {
        let mut out = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
        out.write_all(of_kernel(text).as_bytes()).unwrap();
        Table::inflate(&out.finish().unwrap())
    }

    #[test]
    fn functions_of_the_kernel_are_sorted_by_address() {
        let table = inflated(TEXT).unwrap();
        let names: Vec<&str> = (0..4).map(|row| table.name(row)).collect();
        assert_eq!(names, ["_text", "_raw_spin_lock", "part", "_raw_spin_unlock_irqrestore"]);
        assert_eq!(table.name(-1), "?");
        let words: Vec<u64> = table
            .for_plugin()
            .chunks(8)
            .map(|word| u64::from_ne_bytes(word.try_into().unwrap()))
            .collect();
        assert_eq!(words.len(), 9);
        assert_eq!((words[0], words[4], words[6], words[8]), (4, 1, 0, 2));
    }

    #[test]
    fn variables_are_found_in_either_list() {
        let table = inflated(TEXT).unwrap();
        assert_eq!(table.address_of("data"), Some(0xffff_ffff_8100_0200));
        assert_eq!(table.address_of("_raw_spin_lock"), Some(0xffff_ffff_8100_0100));
        assert_eq!(table.address_of("nothing"), None);
        assert_eq!(table.variable_near(0xffff_ffff_8100_0180), Some("_raw_spin_lock"));
    }

    #[test]
    fn a_kernel_that_hides_addresses_is_said() {
        let hidden = TEXT.replace("ffffffff81000", "0000000000000");
        assert!(inflated(&hidden.replace("00000000000001", "00000000000000")).is_err());
        assert!(inflated("").is_err());
        assert!(Table::inflate(b"noise").is_err());
    }
}
