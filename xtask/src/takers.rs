//! `cargo xtask takers`: the functions that take locks, compared with the symbols of kernels.
//!
//! Call paths get the class of their lock by the function that takes it
//! (`crates/document/src/lock_class/table.rs`), so a function with a new name loses its class. Kept
//! are the functions of three kernels (`kernels.txt` next to the table). With `--map` the symbols
//! of another one are compared with the newest of them: a taker that is gone was renamed, removed
//! or inlined into its caller.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use mmscale_document::{LOCK_CLASSES, LockClassRow};

const KEPT: &str = "crates/document/src/lock_class/kernels.txt";

/// The arguments of the command.
#[derive(Clone, clap::Args)]
pub struct TakersArgs {
    /// Symbols of another kernel: its System.map, or /proc/kallsyms
    #[arg(long, value_name = "FILE")]
    map: Option<PathBuf>,
    /// Keep the symbols under the name of a version: `7.4`
    #[arg(long, value_name = "VERSION", requires = "map")]
    keep: Option<String>,
}

/// The kept kernels, and for each function a mark for each of them.
#[derive(Clone, PartialEq, Debug, Default)]
struct Kept {
    comments: Vec<String>,
    kernels: Vec<String>,
    marks: BTreeMap<String, String>,
}

/// Checks the table and, if one is given, a list of symbols.
///
/// # Errors
/// A class has no taker in the newest kernel, or a taker of the newest kernel is in no symbol of
/// the list.
pub fn run(root: &Path, args: &TakersArgs) -> Result<String, String> {
    let path = root.join(KEPT);
    let text = std::fs::read_to_string(&path).map_err(|why| format!("{KEPT}: {why}"))?;
    let mut kept = parse(&text)?;
    let found = check(&kept);
    if !found.is_empty() {
        return Err(found.join("\n"));
    }
    let Some(map) = &args.map else {
        let (n, kernels) = (kept.marks.len(), kept.kernels.join(", "));
        return Ok(format!("{n} takers in the symbols of {kernels}"));
    };
    let text = std::fs::read_to_string(map).map_err(|why| format!("{}: {why}", map.display()))?;
    let symbols = symbols(&text);
    if symbols.len() < 1000 {
        return Err(format!("{}: {} functions: it is no System.map", map.display(), symbols.len()));
    }
    let gone = gone(&kept, &symbols);
    if let Some(version) = &args.keep {
        keep(&mut kept, version, &symbols);
        std::fs::write(&path, kept.to_string()).map_err(|why| format!("{KEPT}: {why}"))?;
        return Ok(format!("kept {version}; gone: {}", gone.join(", ")));
    }
    match gone.is_empty() {
        true => Ok("all takers of the newest kept kernel are there".to_owned()),
        false => Err(format!(
            "gone, renamed or inlined since {}: {}; enter new names into the table, then --keep",
            kept.kernels.last().map_or("", String::as_str),
            gone.join(", ")
        )),
    }
}

fn parse(text: &str) -> Result<Kept, String> {
    let mut kept = Kept::default();
    for line in text.lines() {
        match line.split_once(' ') {
            Some(("#", _)) => kept.comments.push(line.to_owned()),
            Some(("kernels", rest)) => {
                kept.kernels = rest.split_whitespace().map(str::to_owned).collect();
            }
            Some((name, marks)) if marks.len() == kept.kernels.len() => {
                kept.marks.insert(name.to_owned(), marks.to_owned());
            }
            _ => return Err(format!("{KEPT}: `{line}` is not a function with its marks")),
        }
    }
    Ok(kept)
}

/// Classes that only a module of these kernels takes: a System.map has no symbols of modules.
const IN_MODULES: [&str; 1] = ["zs_class"];

/// Returns functions that are not in the table, and classes without a taker in the newest kernel.
fn check(kept: &Kept) -> Vec<String> {
    let mut found = vec![];
    let takers: BTreeSet<&str> =
        LOCK_CLASSES.iter().flat_map(|row| row.functions.iter().copied()).collect();
    let others = kept.marks.keys().filter(|name| !takers.contains(name.as_str()));
    found.extend(others.map(|name| format!("{name} is in {KEPT}, and in no class")));
    // A lock may be younger than the oldest kernel.
    let newest = kept.kernels.last().map_or("no kernel", String::as_str);
    let known = |row: &&LockClassRow| !row.functions.is_empty() && !IN_MODULES.contains(&row.class);
    // A class without functions is known by the names of its locks only.
    for row in LOCK_CLASSES.iter().filter(known) {
        let mut marks = row.functions.iter().filter_map(|name| kept.marks.get(*name));
        if !marks.any(|marks| !marks.ends_with('.')) {
            found.push(format!("no taker of {} is in {newest}", row.class));
        }
    }
    found
}

/// Returns the names of functions in a list of symbols, without what compilers add.
fn symbols(text: &str) -> BTreeSet<String> {
    let name = |line: &str| {
        let mut words = line.split_whitespace();
        let (_, kind, name) = (words.next()?, words.next()?, words.next()?);
        let plain = name.split('.').next().unwrap_or(name);
        matches!(kind, "t" | "T" | "W" | "w").then(|| plain.to_owned())
    };
    text.lines().filter_map(name).collect()
}

/// Returns the takers of the newest kernel that are not among the symbols of another one.
fn gone(kept: &Kept, symbols: &BTreeSet<String>) -> Vec<String> {
    let own = kept.marks.iter().filter(|(_, marks)| marks.ends_with('L'));
    own.filter(|(name, _)| !symbols.contains(*name)).map(|(name, _)| name.clone()).collect()
}

fn keep(kept: &mut Kept, version: &str, symbols: &BTreeSet<String>) {
    let before = kept.kernels.len();
    kept.kernels.push(version.to_owned());
    for row in LOCK_CLASSES {
        for name in row.functions {
            let is_there = symbols.contains(*name);
            if is_there || kept.marks.contains_key(*name) {
                let marks =
                    kept.marks.entry((*name).to_owned()).or_insert_with(|| ".".repeat(before));
                if marks.len() == before {
                    marks.push(if is_there { 'x' } else { '.' });
                }
            }
        }
    }
}

impl std::fmt::Display for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.comments.iter().try_for_each(|line| writeln!(f, "{line}"))?;
        writeln!(f, "kernels {}", self.kernels.join(" "))?;
        self.marks.iter().try_for_each(|(name, marks)| writeln!(f, "{name} {marks}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# x\nkernels 1 2\nfree_pcppages_bulk LL\nrmqueue_bulk L.\n";

    #[test]
    fn a_function_that_is_gone_is_found() {
        let kept = parse(TEXT).unwrap();
        let all = symbols("ffff81 t free_pcppages_bulk.isra.0\nffff82 D rmqueue_bulk\n");
        assert_eq!(gone(&kept, &all), [""; 0]);
        assert_eq!(gone(&kept, &symbols("ffff81 t free_pcp_bulk\n")), ["free_pcppages_bulk"]);
        let mut next = kept.clone();
        keep(&mut next, "3", &all);
        assert_eq!(next.marks["free_pcppages_bulk"], "LLx");
        assert_eq!(parse(&next.to_string()), Ok(next));
        assert!(check(&kept).iter().any(|what| what == "no taker of lruvec is in 2"));
        assert!(check(&parse("kernels 1\nother L\n").unwrap())[0].starts_with("other is in"));
    }

    #[test]
    fn the_kept_kernels_have_all_classes() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let args = TakersArgs { map: None, keep: None };
        run(root, &args).expect("takers of all classes");
    }
}
