//! Generated trees, logs and stacks whose locks and shares are known.
//!
//! Strategy: paths of a few locks get weights. They are printed as a tree of `perf report` in one
//! of its forms, as a log of a kernel with one of the prefixes, or as stacks with weights. Quotes
//! and prose around them vary.
//! Invariants: no class is reported that was not printed; shares are right within the rounding of
//! the form; every task of a log that waits is reported once.

use std::collections::BTreeMap;

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::inputs::{found, shares};

const TREES: u64 = 4000;
const LOGS: u64 = 1500;
const STACKS: u64 = 1500;

/// The innermost functions of a wait, innermost first, and the class of the lock.
const WAITS: [(&[&str], &str); 12] = [
    (
        &[
            "native_queued_spin_lock_slowpath",
            "_raw_spin_lock_irqsave",
            "folio_lruvec_lock_irqsave",
        ],
        "lruvec",
    ),
    (&["native_queued_spin_lock_slowpath", "_raw_spin_lock_irqsave", "free_pcppages_bulk"], "zone"),
    (&["native_queued_spin_lock_slowpath", "_raw_spin_lock_irqsave", "rmqueue_bulk"], "zone"),
    (&["native_queued_spin_lock_slowpath", "_raw_spin_lock", "__pte_offset_map_lock"], "pte"),
    (&["native_queued_spin_lock_slowpath", "_raw_spin_lock", "unmap_page_range"], "pte"),
    (&["native_queued_spin_lock_slowpath", "_raw_spin_lock", "a_new_function"], "other"),
    (&["native_queued_spin_lock_slowpath", "_raw_spin_lock_irq", "shrink_inactive_list"], "lruvec"),
    (&["native_queued_spin_lock_slowpath", "_raw_spin_lock", "alloc_vmap_area"], "vmap"),
    (
        &[
            "osq_lock",
            "rwsem_optimistic_spin",
            "rwsem_down_write_slowpath",
            "down_write_killable",
            "vm_mmap_pgoff",
        ],
        "mmap_lock",
    ),
    (
        &[
            "rwsem_spin_on_owner",
            "rwsem_optimistic_spin",
            "rwsem_down_write_slowpath",
            "down_write",
            "another_new_one",
        ],
        "rwsem",
    ),
    (&["queued_write_lock_slowpath", "_raw_write_lock_irq", "do_exit"], "tasklist"),
    (
        &[
            "native_queued_spin_lock_slowpath",
            "_raw_spin_lock_irqsave",
            "compact_lock_irqsave",
            "isolate_migratepages_block",
        ],
        "lruvec",
    ),
];

/// Callers, of which some take other locks themselves.
const CALLERS: [&str; 12] = [
    "tlb_finish_mmu",
    "exit_mmap",
    "zap_pte_range",
    "unmap_vmas",
    "do_anonymous_page",
    "handle_mm_fault",
    "copy_process",
    "release_pages",
    "try_to_free_pages",
    "get_page_from_freelist",
    "vmstat_update",
    "do_user_addr_fault",
];

/// Functions that do not wait.
const WORK: [&str; 4] = ["clear_page_erms", "copy_page", "memcpy_orig", "page_counter_charge"];

pub(crate) fn below(rng: &mut Xoshiro256PlusPlus, n: usize) -> usize {
    (rng.next_u64() % n as u64) as usize
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

/// A path, innermost function first, with its class and weight.
pub(crate) struct Drawn {
    pub(crate) path: Vec<String>,
    pub(crate) class: Option<&'static str>,
    pub(crate) weight: u64,
}

pub(crate) fn callers(rng: &mut Xoshiro256PlusPlus) -> Vec<String> {
    (0..1 + below(rng, 5)).map(|_| CALLERS[below(rng, CALLERS.len())].to_owned()).collect()
}

pub(crate) fn draw(rng: &mut Xoshiro256PlusPlus, least: u64, most: u64) -> Drawn {
    let (inner, class) = WAITS[below(rng, WAITS.len())];
    let mut path = owned(inner);
    path.extend(callers(rng));
    path.extend(owned(&["do_syscall_64", "entry_SYSCALL_64_after_hwframe"]));
    Drawn { path, class: Some(class), weight: least + rng.next_u64() % (most - least) }
}

pub(crate) fn expected(all: &[Drawn]) -> BTreeMap<String, f64> {
    let waits = || all.iter().filter_map(|drawn| Some((drawn.class?, drawn.weight)));
    let sum: u64 = waits().map(|(_, weight)| weight).sum();
    let mut shares = BTreeMap::new();
    for (class, weight) in waits() {
        *shares.entry(class.to_owned()).or_insert(0.0) += 100.0 * weight as f64 / sum as f64;
    }
    shares
}

#[track_caller]
pub(crate) fn check(text: &str, expected: &BTreeMap<String, f64>, slack: f64, what: &str) {
    let all: BTreeMap<String, f64> = shares(text).into_iter().collect();
    for (class, share) in &all {
        let right = expected.get(class).copied();
        let close = right.is_some_and(|right| (right - share).abs() <= slack);
        assert!(close, "{what}: {class} {share} for {right:?}\n{all:?}\n{expected:?}\n{text}");
    }
    for (class, right) in expected {
        let missing = !all.contains_key(class) && *right > slack;
        assert!(!missing, "{what}: {class} {right} is missing\n{text}");
    }
}

/// A function of a tree with those below it.
#[derive(Default)]
struct Node {
    name: String,
    weight: u64,
    below: Vec<Node>,
}

impl Node {
    fn add(&mut self, path: &[String], weight: u64) {
        self.weight += weight;
        let Some((first, rest)) = path.split_first() else { return };
        let at = match self.below.iter().position(|node| node.name == *first) {
            Some(at) => at,
            None => {
                self.below.push(Self { name: first.clone(), ..Self::default() });
                self.below.len() - 1
            }
        };
        self.below[at].add(rest, weight);
    }
    fn own(&self) -> u64 {
        self.weight - self.below.iter().map(|node| node.weight).sum::<u64>()
    }
    /// Whether the only function below it has all of its samples.
    fn continues(&self) -> bool {
        self.below.len() == 1 && self.own() == 0
    }
    fn sort(&mut self) {
        self.below.sort_by_key(|node| std::cmp::Reverse(node.weight));
        self.below.iter_mut().for_each(Self::sort);
    }
}

/// How a tree is printed.
#[derive(Clone, Copy)]
struct Style {
    relative: bool,
    old: bool,
    /// The weight of all samples.
    all: u64,
}

impl Style {
    fn share(&self, weight: u64, of: u64) -> f64 {
        100.0 * weight as f64 / if self.relative { of } else { self.all } as f64
    }

    /// Prints the branches below a chain whose names are in a column.
    fn stdio(&self, node: &Node, bars: &str, of: u64, text: &mut String) {
        let n = node.below.len();
        for (at, below) in node.below.iter().enumerate() {
            let last = at + 1 == n;
            let mark = if last { " --" } else { "|--" };
            let gap = if self.old { " " } else { "" };
            text.push_str(&format!("{bars}|          \n"));
            let share = self.share(below.weight, of);
            text.push_str(&format!("{bars}{mark}{share:.2}%--{gap}{}\n", below.name));
            let inner = format!("{bars}{}", if last { "           " } else { "|          " });
            self.chain(below, &inner, text);
        }
    }

    fn chain(&self, from: &Node, bars: &str, text: &mut String) {
        let mut node = from;
        while node.continues() {
            node = &node.below[0];
            text.push_str(&format!("{bars}{}\n", node.name));
        }
        self.stdio(node, bars, node.weight, text);
    }

    fn screen(&self, node: &Node, offset: usize, share: Option<f64>, text: &mut String) {
        let sign = if node.below.is_empty() { ' ' } else { '-' };
        let share_text = share.map_or(String::new(), |share| format!("{share:.2}% "));
        text.push_str(&format!("{:offset$}{sign} {share_text}{}\n", "", node.name));
        let mut offset = offset;
        if node.continues() && share.is_some() {
            offset += 3;
        }
        let mut node = node;
        while node.continues() {
            node = &node.below[0];
            let sign = if node.continues() || node.below.is_empty() { ' ' } else { '-' };
            text.push_str(&format!("{:offset$}{sign} {}\n", "", node.name));
        }
        for below in &node.below {
            let share = self.share(below.weight, node.weight);
            self.screen(below, offset + 3, Some(share), text);
        }
    }
}

fn row(name: &str, percent: f64, own: Option<f64>, sign: &str) -> String {
    let own = own.map_or(String::new(), |own| format!("{own:>9.2}%"));
    format!("{sign}{percent:>9.2}%{own}  usemem  [kernel.kallsyms]  [k] {name}\n")
}

/// Prints the samples of each innermost function as `perf report` does.
pub(crate) fn tree(
    rng: &mut Xoshiro256PlusPlus,
    all: &[Drawn],
    total: u64,
) -> (String, &'static str) {
    let (relative, screen, outermost_first) =
        (below(rng, 3) == 0, below(rng, 3) == 0, below(rng, 2) == 0);
    let children = below(rng, 3) == 0;
    let style = Style { relative, old: relative && below(rng, 2) == 0, all: total };
    let mut by_leaf: BTreeMap<&str, Vec<&Drawn>> = BTreeMap::new();
    for drawn in all {
        by_leaf.entry(&drawn.path[0]).or_default().push(drawn);
    }
    let mut text = String::new();
    for (leaf, drawn) in by_leaf {
        let mut root = Node::default();
        for one in drawn {
            let mut path = one.path.clone();
            if outermost_first {
                path.reverse();
            }
            root.add(&path, one.weight);
        }
        root.sort();
        let percent = 100.0 * root.weight as f64 / total as f64;
        text.push_str(&row(
            leaf,
            percent,
            children.then_some(percent),
            if screen { "-" } else { "" },
        ));
        if screen {
            for first in &root.below {
                let share = (root.below.len() > 1 || below(rng, 2) == 0)
                    .then(|| style.share(first.weight, root.weight));
                style.screen(first, 3, share, &mut text);
            }
        } else if let [first] = root.below.as_slice() {
            let (bars, gap) = ("            ", if style.old { " " } else { "" });
            text.push_str(&format!("{bars}|\n{bars}---{gap}{}\n", first.name));
            style.chain(first, &format!("{bars}   {gap}"), &mut text);
        } else {
            style.stdio(&root, "            ", root.weight, &mut text);
        }
        text.push('\n');
    }
    if children {
        // The rows of callers have the same samples again.
        let percent = 100.0;
        text.push_str(&row("do_syscall_64", percent, Some(0.0), ""));
        text.push_str("            |\n            ---do_syscall_64\n");
    }
    let what = match (screen, relative, outermost_first) {
        (true, false, _) => "screen",
        (true, true, _) => "screen, relative",
        (false, false, false) => "callee",
        (false, false, true) => "caller",
        (false, true, _) => "relative",
    };
    (text, what)
}

pub(crate) fn quoted(rng: &mut Xoshiro256PlusPlus, text: &str) -> String {
    let mark = ["", "", "> ", "> > "][below(rng, 4)];
    let quoted: String = text.lines().map(|line| format!("{mark}{line}\n")).collect();
    let before =
        ["", "Hi,\n\nzap_pte_range and zone->lock may be slow.\n\n", "perf report says:\n\n"];
    let after = ["", "\nThanks\n", "\n-- \nA. N. Author\n"];
    format!("{}{quoted}{}", before[below(rng, 3)], after[below(rng, 3)])
}

#[test]
fn trees_of_all_forms_have_the_shares_that_were_printed() {
    let mut forms: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in 0..TREES {
        let rng = &mut Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut all: Vec<Drawn> = (0..1 + below(rng, 6)).map(|_| draw(rng, 300, 3000)).collect();
        for _ in 0..below(rng, 3) {
            let mut path = owned(&[WORK[below(rng, WORK.len())]]);
            path.extend(callers(rng));
            all.push(Drawn { path, class: None, weight: 300 + rng.next_u64() % 1000 });
        }
        let sum: u64 = all.iter().map(|drawn| drawn.weight).sum();
        let total = sum + rng.next_u64() % sum;
        let (text, what) = tree(rng, &all, total);
        *forms.entry(what).or_default() += 1;
        check(&quoted(rng, &text), &expected(&all), 0.5, &format!("seed {seed}, {what}"));
    }
    assert!(forms.len() == 5 && forms.values().all(|n| *n > TREES / 20), "{forms:?}");
}

#[test]
fn logs_of_all_forms_have_the_tasks_that_were_printed() {
    for seed in 0..LOGS {
        let rng = &mut Xoshiro256PlusPlus::seed_from_u64(seed);
        let all: Vec<Drawn> = (0..1 + below(rng, 5)).map(|_| draw(rng, 1, 2)).collect();
        let style = below(rng, 8);
        let mut text = String::new();
        for (cpu, drawn) in all.iter().enumerate() {
            let cpu = 7 * cpu + below(rng, 5);
            let (first, rest) = drawn.path.split_first().unwrap();
            let mut lines = vec![
                format!(
                    "watchdog: BUG: soft lockup - CPU#{cpu} stuck for 2{}s! [t{cpu}:{}]",
                    cpu % 9,
                    100 + cpu
                ),
                format!(
                    "CPU: {cpu} PID: {} Comm: t{cpu} Kdump: loaded Not tainted 6.12.0 #1",
                    100 + cpu
                ),
                "Hardware name: x".to_owned(),
                format!("RIP: 0010:{first}+0x88/0x300"),
                "RSP: 0018:ffffc9000a5c7b18 EFLAGS: 00000202".to_owned(),
                "Call Trace:".to_owned(),
                " <TASK>".to_owned(),
                " ? asm_sysvec_apic_timer_interrupt+0x1a/0x20".to_owned(),
                " ? zap_pte_range+0x1a/0x20".to_owned(),
            ];
            lines.extend(rest.iter().map(|name| format!(" {name}+0x{:x}/0x200", 16 + cpu)));
            lines.push(" </TASK>".to_owned());
            for (at, line) in lines.iter().enumerate() {
                let time = format!("{:5}.{:06}", 300 + cpu, at);
                let prefix = match style {
                    0 => String::new(),
                    1 => format!("[{time}] "),
                    2 => format!("[{time}][ T{}] ", 100 + cpu),
                    3 => format!("[{time}] [    C{cpu}] "),
                    4 => format!("Jul 17 12:00:01 host kernel: [{time}] "),
                    5 => "Jul 17 12:00:01 host-2.example kernel: ".to_owned(),
                    6 => format!("2025-07-17T12:00:01.{at:06}+02:00 host kernel: "),
                    _ => format!("<4>[{time}] "),
                };
                text.push_str(&format!("{prefix}{line}\n"));
            }
        }
        let text = quoted(rng, &text);
        check(&text, &expected(&all), 1e-6, &format!("seed {seed}, style {style}"));
        let waiting = found(&text).1.items.len();
        assert_eq!(waiting, all.len(), "seed {seed}, style {style}\n{text}");
    }
}

#[test]
fn stacks_of_all_forms_have_the_weights_that_were_printed() {
    for seed in 0..STACKS {
        let rng = &mut Xoshiro256PlusPlus::seed_from_u64(seed);
        let all: Vec<Drawn> = (0..1 + below(rng, 6)).map(|_| draw(rng, 10, 1_000_000)).collect();
        let style = below(rng, 6);
        let mut text = String::new();
        for Drawn { path, weight, .. } in &all {
            let frames = |indent: &str| -> String {
                path.iter().map(|name| format!("{indent}{name}+{}\n", weight % 90)).collect()
            };
            let plain: String = path.iter().map(|name| format!("    {name}\n")).collect();
            let mut outer = path.clone();
            outer.reverse();
            let folded = outer.join(";");
            text.push_str(&match style {
                0 => format!("@wait[\n{}, usemem]: {weight}\n", frames("    ")),
                1 => format!("{plain}    -                usemem (12)\n        {weight}\n\n"),
                2 => format!(
                    "usemem 12 [001] 5.{:06}: {weight} cycles:P: \n{}\n",
                    weight % 1_000_000,
                    path.iter()
                        .map(|name| format!("\tffffffff81a0b2f1 {name}+0x2a ([kernel.kallsyms])\n"))
                        .collect::<String>()
                ),
                3 => format!("usemem;{folded} {weight}\n"),
                4 => format!("{weight:>9} usemem;{folded}\n"),
                _ => format!("{plain}    {weight}\n\n"),
            });
        }
        let what = format!("seed {seed}, style {style}");
        check(&quoted(rng, &text), &expected(&all), 1e-3, &what);
    }
}
