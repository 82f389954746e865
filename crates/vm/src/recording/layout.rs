//! Objects at addresses of a kernel's memory: those of slabs, of nodes and of memory groups, stacks
//! of tasks, and the data of CPUs. They are read from the memory of a machine that has ended, with
//! the types of its kernel.

use super::btf::{Btf, Place};
use super::objects::{DIRECT_MAP, IMAGE, RECORDS_OF_PAGES, Region, region};
use crate::machine::GuestMemory;
use crate::symbols::Table;
use std::collections::HashMap;

const PAGE_SHIFT: u64 = 12;
/// The most bytes of types, the most caches of objects, nodes.
const MAX_TYPES: u64 = 64 << 20;
const MAX_CACHES: usize = 4096;
const MAX_NAME: u64 = 64;
/// The offset in the record of a page of the word that names its head, if its lowest bit is set.
const HEAD: u64 = 8;
/// Levels of page tables; bits of an entry: present, large; its address.
const LEVELS: u32 = 4;
const PRESENT: u64 = 1;
const LARGE: u64 = 1 << 7;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
/// Bytes of the stack of a task, to which it is aligned (THREAD_SIZE of x86-64 without KASAN), and
/// its lowest word, which the kernel checks for overflows (STACK_END_MAGIC).
const STACK_BYTES: u64 = 16 << 10;
const STACK_END: u64 = 0x57ac_6e9d;
/// The name of a stack of a task.
pub const STACK: &str = "stack of a task";

/// Names of caches whose objects have types with other names.
const TYPES: [(&str, &str); 8] = [
    ("filp", "file"),
    ("signal_cache", "signal_struct"),
    ("sighand_cache", "sighand_struct"),
    ("files_cache", "files_struct"),
    ("fs_cache", "fs_struct"),
    ("cred_jar", "cred"),
    ("radix_tree_node", "xa_node"),
    ("proc_inode_cache", "proc_inode"),
];
/// Types of which each node has an object.
const OF_NODES: [&str; 2] = ["pglist_data", "mem_cgroup_per_node"];
/// Ends of names of caches that names of types have not, and ends that those have.
const ENDS: [(&str, &str); 4] =
    [("_cache", "_info"), ("_cache", ""), ("_cachep", ""), ("_jar", "")];

/// Reads the memory of the kernel.
struct View<'a> {
    memory: &'a GuestMemory,
    /// The address of the highest page table.
    tables: u64,
}

impl View<'_> {
    fn physical(&self, address: u64) -> Option<u64> {
        match region(address) {
            Region::Direct => Some(address - DIRECT_MAP),
            Region::Image => Some(address - IMAGE),
            _ => self.walk(address),
        }
    }

    fn walk(&self, address: u64) -> Option<u64> {
        let mut table = self.tables.checked_sub(IMAGE)?;
        for level in (0..LEVELS).rev() {
            let shift = PAGE_SHIFT as u32 + 9 * level;
            let mut entry = [0; 8];
            let at = table + (address >> shift & 0x1ff) * 8;
            let is_read = self.memory.read(at, &mut entry);
            let entry = u64::from_le_bytes(entry);
            if !is_read || entry & PRESENT == 0 {
                return None;
            }
            if level == 0 || entry & LARGE != 0 {
                let within = (1 << shift) - 1;
                return Some((entry & ADDRESS & !within) + (address & within));
            }
            table = entry & ADDRESS;
        }
        None
    }

    /// Reads bytes that do not lie across pages of different places.
    fn bytes<const N: usize>(&self, address: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.memory.read(self.physical(address)?, &mut bytes).then_some(bytes)
    }
    fn word(&self, address: u64) -> Option<u64> {
        self.bytes(address).map(u64::from_le_bytes)
    }
    fn half(&self, address: u64) -> Option<u32> {
        self.bytes(address).map(u32::from_le_bytes)
    }
    fn text(&self, address: u64) -> Option<String> {
        let places = (0..MAX_NAME).map(|at| address.wrapping_add(at));
        let bytes = places.map(|at| self.bytes::<1>(at).map(|[byte]| byte));
        let bytes: Option<Vec<u8>> = bytes.take_while(|byte| *byte != Some(0)).collect();
        String::from_utf8(bytes?).ok()
    }
}

/// Objects of one size, as the kernel allocates them.
struct Cache {
    name: String,
    size: u64,
}

/// An object that is none of a slab.
struct Known {
    from: u64,
    bytes: u64,
    structure: &'static str,
}

impl Known {
    fn contains(&self, address: u64) -> bool {
        (self.from..self.from.saturating_add(self.bytes)).contains(&address)
    }
}

/// The kernel's memory with its types.
pub(super) struct Layout<'a> {
    view: View<'a>,
    btf: Btf,
    caches: HashMap<u64, Cache>,
    known: Vec<Known>,
    /// The begin of the data of each CPU, and the bytes of its variables.
    of_cpus: Vec<u64>,
    page_bytes: u64,
    /// The offset of the cache in the record of a page.
    cache: u64,
    /// Bytes of a CPU's data, those allocated later included.
    of_cpu_bytes: u64,
}

impl<'a> Layout<'a> {
    /// Reads types and caches; `None` if the kernel has no types, or they are of another form.
    pub(super) fn of(
        memory: &'a GuestMemory,
        table: &Table,
        cpus: usize,
        nodes: usize,
    ) -> Option<Self> {
        let view = View { memory, tables: table.address_of("init_top_pgt")? };
        let (from, to) = (table.address_of("__start_BTF")?, table.address_of("__stop_BTF")?);
        let length = to.checked_sub(from).filter(|length| *length < MAX_TYPES)?;
        let mut types = vec![0; usize::try_from(length).ok()?];
        if !memory.read(view.physical(from)?, &mut types) {
            return None;
        }
        let btf = Btf::parse(&types)?;
        let caches = caches(&view, &btf, table)?;
        let known = known(&view, &btf, table, nodes);
        let first = table.address_of("__per_cpu_start").unwrap_or(0);
        let offsets = table.address_of("__per_cpu_offset");
        let offset = |cpu| view.word(offsets? + 8 * cpu).map(|offset| offset.wrapping_add(first));
        let of_cpus = (0..cpus as u64).filter_map(offset).collect();
        let unit = table.address_of("pcpu_unit_size").and_then(|at| view.half(at));
        Some(Self {
            of_cpu_bytes: unit.unwrap_or(0).into(),
            page_bytes: btf.size_of("page")?,
            cache: btf.offset_of("slab", "slab_cache")?,
            view,
            btf,
            caches,
            known,
            of_cpus,
        })
    }

    /// Returns what is at an address, such as `mm_struct mmap_lock`.
    pub(super) fn name(&self, address: u64) -> Option<String> {
        let place = self.place(address)?;
        let Place { structure, member } = place;
        Some(if member.is_empty() { structure } else { format!("{structure} {member}") })
    }

    /// Whether an address is in the data of a node: its zones and lists, and the lists of the
    /// memory group of all on it.
    pub(super) fn is_of_node(&self, address: u64) -> bool {
        let is_of = |of: &&Known| OF_NODES.contains(&of.structure);
        self.known.iter().filter(is_of).any(|of| of.contains(address))
    }

    /// Whether an address is in the first data of a CPU: its variables, and the allocations among
    /// them.
    pub(super) fn is_of_cpu(&self, address: u64) -> bool {
        let bytes = self.of_cpu_bytes;
        self.of_cpus.iter().any(|begin| (*begin..begin.saturating_add(bytes)).contains(&address))
    }

    fn place(&self, address: u64) -> Option<Place> {
        if let Some(of) = self.known.iter().find(|of| of.contains(address)) {
            return self.btf.place(of.structure, address - of.from);
        }
        let of_cpu = |begin: &u64| address.checked_sub(*begin).and_then(|at| self.btf.per_cpu(at));
        if let Some(place) = self.of_cpus.iter().find_map(of_cpu) {
            return Some(place);
        }
        if self.is_stack(address) {
            return Some(Place { structure: STACK.to_owned(), member: String::new() });
        }
        let (cache, offset) = self.object(address)?;
        let structure = structure_of(&self.btf, &cache.name);
        let place = structure.and_then(|structure| self.btf.place(&structure, offset));
        let line = offset / 64 * 64;
        let unknown =
            || Place { structure: format!("{} {line:#x}", cache.name), member: String::new() };
        Some(place.unwrap_or_else(unknown))
    }

    /// Whether an address is in the stack of a task that lives, or in one that is kept for the next
    /// task.
    fn is_stack(&self, address: u64) -> bool {
        let is_region = matches!(region(address), Region::Mapped | Region::Direct);
        is_region && self.view.word(address & !(STACK_BYTES - 1)) == Some(STACK_END)
    }

    /// Returns the cache of the object at an address, and the offset in it.
    fn object(&self, address: u64) -> Option<(&Cache, u64)> {
        if region(address) != Region::Direct {
            return None;
        }
        let record = |number: u64| RECORDS_OF_PAGES + number * self.page_bytes;
        let mut page = record((address - DIRECT_MAP) >> PAGE_SHIFT);
        let head = self.view.word(page.wrapping_add(HEAD))?;
        if head & 1 == 1 {
            page = head - 1;
        }
        let cache = self.caches.get(&self.view.word(page.wrapping_add(self.cache))?)?;
        let number = page.checked_sub(RECORDS_OF_PAGES)?.checked_div(self.page_bytes)?;
        let first = number.checked_mul(1 << PAGE_SHIFT)?;
        let offset = (address - DIRECT_MAP).checked_sub(first)?;
        Some((cache, offset.checked_rem(cache.size)?))
    }
}

/// Reads the list of all caches.
fn caches(view: &View<'_>, btf: &Btf, table: &Table) -> Option<HashMap<u64, Cache>> {
    let of = |member| btf.offset_of("kmem_cache", member);
    let (list, name, size) = (of("list")?, of("name")?, of("size")?);
    let first = table.address_of("slab_caches")?;
    let mut caches = HashMap::new();
    let mut at = view.word(first)?;
    while at != first && caches.len() < MAX_CACHES {
        let cache = at.checked_sub(list)?;
        let name = view.text(view.word(cache.wrapping_add(name))?)?;
        caches.insert(cache, Cache { name, size: view.half(cache.wrapping_add(size))?.into() });
        at = view.word(at)?;
    }
    Some(caches)
}

/// Returns the objects of nodes, and those of the memory group of all.
fn known(view: &View<'_>, btf: &Btf, table: &Table, nodes: usize) -> Vec<Known> {
    let object = |from: Option<u64>, structure: &'static str| {
        let (from, bytes) = (from.filter(|from| *from > 0)?, btf.size_of(structure)?);
        Some(Known { from, bytes, structure })
    };
    let mut known = Vec::new();
    let group = table.address_of("root_mem_cgroup").and_then(|at| view.word(at));
    let nodes_of_group = btf.offset_of("mem_cgroup", "nodeinfo");
    for node in 0..nodes as u64 {
        let of_node = table.address_of("node_data").and_then(|at| view.word(at + 8 * node));
        let of_group = group
            .zip(nodes_of_group)
            .and_then(|(at, of)| view.word(at.wrapping_add(of + 8 * node)));
        let [node, group] = OF_NODES;
        known.extend(object(of_node, node));
        known.extend(object(of_group, group));
    }
    known.extend(object(group, "mem_cgroup"));
    known
}

/// Returns the type of a cache's objects.
fn structure_of(btf: &Btf, cache: &str) -> Option<String> {
    let listed = TYPES.iter().find(|(name, _)| *name == cache).map(|(_, of)| (*of).to_owned());
    let ends =
        ENDS.iter().filter_map(|(end, other)| Some(cache.strip_suffix(end)?.to_owned() + other));
    std::iter::once(cache.to_owned()).chain(listed).chain(ends).find(|name| btf.has(name))
}

#[cfg(test)]
mod tests {
    use super::super::btf;
    use super::*;
    use crate::machine::Topology;

    #[test]
    fn types_of_caches_have_like_names() {
        let types = btf::tests::types();
        let btf = Btf::parse(&types).unwrap();
        let of = |cache| structure_of(&btf, cache);
        assert_eq!(
            [of("big"), of("big_cachep"), of("outer_jar")].map(Option::unwrap),
            ["big", "big", "outer"]
        );
        assert_eq!(of("kmalloc-64"), None);
    }

    /// A kernel of one node with a cache of `mm_struct`, one slab of it in page 8, and a variable
    /// `node_data`. Its image is at physical address 0.
    fn kernel() -> (GuestMemory, Table) {
        let topology = Topology::new(1, 1, Topology::DISTANCE, 1 << 30).unwrap();
        let memory = GuestMemory::new(&topology).unwrap();
        let word = |at: u64, word: u64| memory.write(at, &word.to_le_bytes());
        let types = btf::tests::structures(&[
            ("page", 64, &[]),
            ("slab", 64, &[("slab_cache", 24)]),
            ("kmem_cache", 64, &[("name", 0), ("size", 8), ("list", 16)]),
            ("mm_struct", 256, &[("mm_count", 0), ("mmap_lock", 128)]),
            ("pglist_data", 256, &[("lock", 64)]),
        ]);
        memory.write(0x10_0000, &types);
        let table = format!(
            "ffffffff80001000 D init_top_pgt\nffffffff80005000 D slab_caches\nffffffff80005100 B \
             node_data\nffffffff80100000 R __start_BTF\n{:x} R __stop_BTF\n",
            IMAGE + 0x10_0000 + types.len() as u64
        );
        // Page tables for the records of pages, which are at 2 MiB.
        let index = |level: u32| (RECORDS_OF_PAGES >> (12 + 9 * level) & 0x1ff) * 8;
        word(0x1000 + index(3), 0x2000 | PRESENT);
        word(0x2000 + index(2), 0x3000 | PRESENT);
        word(0x3000 + index(1), 0x20_0000 | PRESENT | LARGE);
        // The list has one cache.
        word(0x5000, DIRECT_MAP + 0x6010);
        word(0x6010, IMAGE + 0x5000);
        word(0x6000, DIRECT_MAP + 0x6100);
        memory.write(0x6008, &256_u32.to_le_bytes());
        memory.write(0x6100, b"mm_struct\0");
        // Page 8 is the head of a slab, page 9 a part of it.
        word(0x20_0000 + 8 * 64 + 24, DIRECT_MAP + 0x6000);
        word(0x20_0000 + 9 * 64 + HEAD, RECORDS_OF_PAGES + 8 * 64 + 1);
        word(0x5100, DIRECT_MAP + 0x7000);
        (memory, Table::of(&table))
    }

    #[test]
    fn objects_are_named_by_their_slab_and_their_node() {
        let (memory, table) = kernel();
        let layout = Layout::of(&memory, &table, 1, 1).unwrap();
        let name = |physical| layout.name(DIRECT_MAP + physical);
        assert_eq!(name(0x8000 + 128).as_deref(), Some("mm_struct mmap_lock"));
        // The first object of the second page is the seventeenth.
        assert_eq!(name(0x9000 + 256).as_deref(), Some("mm_struct mm_count"));
        assert_eq!(name(0x7000 + 64).as_deref(), Some("pglist_data lock"));
        let is_of_node = |physical| layout.is_of_node(DIRECT_MAP + physical);
        assert_eq!([0x7000 + 255, 0x7000 + 256, 0x8000].map(is_of_node), [true, false, false]);
        assert_eq!([name(0xa000), layout.name(0xffff_c900_0000_0000)], [None, None]);
    }

    #[test]
    fn stacks_of_tasks_are_known_by_their_lowest_word() {
        let (memory, table) = kernel();
        let layout = Layout::of(&memory, &table, 1, 1).unwrap();
        memory.write(0x1_4000, &STACK_END.to_le_bytes());
        let name = |physical| layout.name(DIRECT_MAP + physical);
        assert_eq!(name(0x1_4008).as_deref(), Some(STACK));
        assert_eq!(name(0x1_7fff).as_deref(), Some(STACK));
        assert_eq!([name(0x1_3ff8), name(0x1_8000)], [None, None]);
    }

    #[test]
    fn a_kernel_without_types_has_no_names() {
        let (memory, table) = kernel();
        memory.write(0x10_0000, &[0; 2]);
        assert!(Layout::of(&memory, &table, 1, 1).is_none());
        assert!(Layout::of(&memory, &Table::of(""), 1, 1).is_none());
    }
}
