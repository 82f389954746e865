//! Dependencies between crates have one direction, from the command line down to the two waists.
//! `ARCHITECTURE.md` has the list of allowed dependencies as it is here.

use super::{Finding, Tree};
use toml::{Table, Value};

/// A crate of the workspace and its allowed dependencies.
struct Room {
    name: &'static str,
    may_use: &'static [&'static str],
    /// Additional dependencies of its tests and benchmarks.
    tests_may_use: &'static [&'static str],
    /// Whether only tests and benchmarks may depend on it, under `[dev-dependencies]`.
    dev_only: bool,
}

const fn room(name: &'static str, may_use: &'static [&'static str]) -> Room {
    Room { name, may_use, tests_may_use: &[], dev_only: false }
}

const fn dev_room(name: &'static str, may_use: &'static [&'static str]) -> Room {
    Room { name, may_use, tests_may_use: &[], dev_only: true }
}

impl Room {
    /// Allows its tests to use the memory manager.
    const fn tested_with(mut self, tests_may_use: &'static [&'static str]) -> Self {
        self.tests_may_use = tests_may_use;
        self
    }
    /// Returns the line of the page for this crate.
    fn row(&self) -> String {
        let uses = if self.may_use.is_empty() { "nothing".into() } else { self.may_use.join(", ") };
        let tests = self.tests_may_use.join(", ");
        let in_tests = if tests.is_empty() { tests } else { format!("; in tests: {tests}") };
        format!("{} -> {uses}{in_tests}", self.name)
    }
    fn may_use(&self, other: &str, dev: bool) -> bool {
        self.may_use.contains(&other) || dev && self.tests_may_use.contains(&other)
    }
}

/// The memory manager, for tests of the machines that run it.
const MEMORY_MANAGER: &[&str] = &["frames", "mm"];

/// All crates. `linux` does not depend on `mm`, `report` not on a machine, machines depend on
/// `arch` but not on `mm`, and `arch` and `system` on no other crate.
const HOUSE: [Room; 31] = [
    room("arch", &[]),
    room("frames", &["arch"]),
    room("frames-c", &["arch", "frames"]),
    room("mm", &["arch", "frames"]),
    room("system", &[]),
    room("document", &[]),
    room("files", &[]),
    room("identity", &[]),
    room("script", &["system"]),
    room("stats", &[]),
    room("lift", &[]),
    room("vm", &["files", "lift"]),
    room("kernel", &["arch", "frames", "mm", "system"]),
    room("sim", &["arch", "document", "files"]).tested_with(MEMORY_MANAGER),
    room("threads", &["arch", "document"]).tested_with(MEMORY_MANAGER),
    room("replay", &["arch", "document", "lift", "sim"]),
    room("boot", &["arch", "kernel", "mm", "sim", "system", "threads"]),
    room("linux", &["system", "document"]).tested_with(&["script"]),
    room("report", &["document", "files", "stats"]),
    room("measured", &["document"]),
    room(
        "harness",
        &[
            "arch", "boot", "document", "files", "frames", "kernel", "lift", "linux", "mm",
            "replay", "script", "sim", "stats", "system", "threads",
        ],
    ),
    room("studies", &["arch", "document", "frames", "harness", "kernel", "mm", "sim", "system"])
        .tested_with(&["boot", "live"]),
    room(
        "live",
        &[
            "arch", "document", "files", "frames", "harness", "kernel", "linux", "mm", "stats",
            "system",
        ],
    ),
    room(
        "calibrate",
        &[
            "arch", "document", "frames", "harness", "kernel", "linux", "mm", "sim", "system",
            "threads",
        ],
    ),
    room(
        "cli",
        &[
            "calibrate",
            "document",
            "files",
            "harness",
            "identity",
            "lift",
            "live",
            "measured",
            "report",
            "stats",
            "studies",
            "vm",
        ],
    ),
    dev_room(
        "conformance",
        &["arch", "boot", "frames", "kernel", "mm", "sim", "system", "threads"],
    ),
    dev_room("fuzz", &["cli", "harness", "script", "studies"]),
    dev_room("stepped", &["arch"]),
    dev_room("interleave", &["arch"]).tested_with(MEMORY_MANAGER),
    dev_room("peers", &["arch", "frames", "mm", "threads"]),
    dev_room("metal", &["arch", "frames", "kernel", "mm", "system"]),
];

/// The crate whose package has the name of the program: `cargo install mmscale` installs it.
const PROGRAM: &str = "cli";

/// Returns the name of a crate's package.
fn package_of(krate: &str) -> String {
    if krate == PROGRAM { "mmscale".to_owned() } else { format!("mmscale-{krate}") }
}

/// Returns the crate of a package of this workspace; `None`: it is of another.
fn krate_of(package: &str) -> Option<&str> {
    if package == "mmscale" { Some(PROGRAM) } else { package.strip_prefix("mmscale-") }
}

/// Crates that need Linux. Others depend on them optionally, behind the feature `live`, so that the
/// simulator and the harness build on other systems.
const BOUND: [&str; 2] = ["linux", "live"];

/// Libraries that only some crates may use, with the reason.
const LIBRARIES: [(&str, &[&str], &str); 3] = [
    ("aya", &["linux"], "it needs Linux, which only `linux` may"),
    ("anyhow", &["cli"], "libraries have typed errors: use thiserror"),
    ("clap", &["cli", "fuzz"], "only programs parse command lines"),
];

/// The page with the list of allowed dependencies.
const PAGE: &str = "ARCHITECTURE.md";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = tree.source(PAGE).map_or_else(Vec::new, |page| listed(&page.text));
    for source in tree.sources().filter(|source| source.path.ends_with("Cargo.toml")) {
        let Some(krate) = source.krate().filter(|krate| *krate != "xtask") else { continue };
        let manifest = Manifest { path: &source.path, text: &source.text, krate };
        match source.text.parse::<Table>() {
            Ok(table) => manifest.check(&table, &mut found),
            Err(why) => found.push(Finding::new(&source.path, 0, format!("not TOML: {why}"))),
        }
    }
    found
}

/// Compares the page's lines of the form `CRATE -> CRATE, ..` with [`HOUSE`]. These are the
/// indented lines with an arrow after the first word.
fn listed(page: &str) -> Vec<Finding> {
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let is_row =
        |line: &str| line.starts_with("    ") && line.split_whitespace().nth(1) == Some("->");
    let rows = page.lines().enumerate().filter(|(_, line)| is_row(line));
    let rows: Vec<(usize, String)> = rows.map(|(at, line)| (at + 1, words(line))).collect();
    let wanted: Vec<String> = HOUSE.iter().map(Room::row).collect();
    let missing = wanted.iter().filter(|row| !rows.iter().any(|(_, shown)| shown == *row));
    let mut found: Vec<Finding> = missing
        .map(|row| Finding::new(PAGE, 0, format!("has no line `{row}`: add it to the list")))
        .collect();
    let wrong = rows.iter().filter(|(_, shown)| !wanted.contains(shown));
    found.extend(wrong.map(|(line, shown)| {
        let what = format!("`{shown}` differs from the list in xtask/src/tidy/direction.rs");
        Finding::new(PAGE, *line, what)
    }));
    found
}

struct Manifest<'a> {
    path: &'a str,
    text: &'a str,
    krate: &'a str,
}

impl Manifest<'_> {
    fn check(&self, table: &Table, found: &mut Vec<Finding>) {
        let Some(room) = HOUSE.iter().find(|room| room.name == self.krate) else {
            let what = format!(
                "crate `{}` is not in the list of crates: add it to xtask/src/tidy/direction.rs",
                self.krate
            );
            found.push(Finding::new(self.path, 0, what));
            return;
        };
        if self.path.starts_with("testing/") != room.dev_only {
            let folder = if room.dev_only { "testing" } else { "crates" };
            let what = format!("crate `{}` must be in `{folder}/`: move it", self.krate);
            found.push(Finding::new(self.path, 0, what));
        }
        let expected = package_of(self.krate);
        let package = table.get("package").and_then(Value::as_table);
        if package.and_then(|p| p.get("name")).and_then(Value::as_str) != Some(&expected) {
            found.push(Finding::new(
                self.path,
                1,
                format!("the package must be named `{expected}`"),
            ));
        }
        let inherits = table.get("lints").and_then(|lints| lints.get("workspace"));
        if inherits.and_then(Value::as_bool) != Some(true) {
            let what = "the workspace's lints do not apply: add `[lints] workspace = true`";
            found.push(Finding::new(self.path, 0, what));
        }
        for Dependency { name, dev, optional } in dependencies(table) {
            let what = self.judge(room, &name, dev);
            let bound = || (!dev && !optional).then(|| self.judge_bound(&name)).flatten();
            if let Some(what) = what.or_else(bound) {
                found.push(Finding::new(self.path, self.line_of(&name), what));
            }
        }
    }
    /// Returns what is wrong with a dependency on `name`.
    fn judge(&self, room: &Room, name: &str, dev: bool) -> Option<String> {
        let here = self.krate;
        if let Some((_, users, why)) = LIBRARIES.iter().find(|(library, _, _)| *library == name) {
            return (!users.contains(&here))
                .then(|| format!("`{here}` must not use {name}: {why}"));
        }
        let other = krate_of(name)?;
        let Some(target) = HOUSE.iter().find(|room| room.name == other) else {
            return Some(format!(
                "`{name}` is not in the list of crates: add it to xtask/src/tidy/direction.rs"
            ));
        };
        if target.dev_only {
            return (!dev)
                .then(|| format!("`{name}` is for tests: move it to `[dev-dependencies]`"));
        }
        (!room.may_use(other, dev)).then(|| {
            let may =
                if room.may_use.is_empty() { "no other".into() } else { room.may_use.join(", ") };
            format!("`{here}` must not depend on `{other}`; allowed: {may}")
        })
    }
    /// Returns what is wrong with a required dependency on `name`.
    fn judge_bound(&self, name: &str) -> Option<String> {
        let is_bound = |krate: &str| BOUND.contains(&krate);
        let wrong = is_bound(krate_of(name)?) && !is_bound(self.krate);
        wrong.then(|| format!("`{name}` needs Linux: make it optional, behind the feature `live`"))
    }
    fn line_of(&self, name: &str) -> usize {
        let named = |line: &str| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['.', ' ', '=']))
        };
        self.text.lines().position(named).map_or(0, |at| at + 1)
    }
}

struct Dependency {
    name: String,
    /// Whether it is a dev-dependency.
    dev: bool,
    optional: bool,
}

fn dependencies(table: &Table) -> Vec<Dependency> {
    let mut all = Vec::new();
    let mut add = |table: &Table| {
        for (key, dev) in
            [("dependencies", false), ("build-dependencies", false), ("dev-dependencies", true)]
        {
            let list = table.get(key).and_then(Value::as_table);
            all.extend(list.into_iter().flatten().map(|(name, how)| {
                let optional = how.get("optional").and_then(Value::as_bool) == Some(true);
                Dependency { name: name.clone(), dev, optional }
            }));
        }
    };
    add(table);
    let targets = table.get("target").and_then(Value::as_table);
    targets.into_iter().flat_map(Table::values).filter_map(Value::as_table).for_each(add);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(krate: &str, dependencies: &str) -> Vec<Finding> {
        let name = package_of(krate);
        let text =
            format!("[package]\nname = \"{name}\"\n[lints]\nworkspace = true\n{dependencies}");
        check(&Tree::of(&[(&format!("crates/{krate}/Cargo.toml"), &text)]))
    }

    #[test]
    fn nothing_runs_back_up() {
        let down = "[dependencies]\nmmscale-arch.workspace = true\n";
        assert!(found("sim", down).is_empty());
        let up = found("mm", "[dependencies]\nmmscale-sim.workspace = true\n");
        assert_eq!(up.len(), 1);
        assert_eq!(up[0].line, 6);
        assert_eq!(found("report", "[dependencies]\nmmscale-sim.workspace = true\n").len(), 1);
        assert_eq!(found("linux", down).len(), 1);
    }

    #[test]
    fn tests_do_not_turn_the_direction_round_either() {
        assert_eq!(found("mm", "[dev-dependencies]\nmmscale-sim.workspace = true\n").len(), 1);
        let target = "[target.'cfg(unix)'.dependencies]\nmmscale.workspace = true\n";
        assert_eq!(found("mm", target).len(), 1);
    }

    #[test]
    fn machines_see_the_memory_manager_in_tests_only() {
        for krate in ["sim", "threads"] {
            let line = "mmscale-mm.workspace = true\n";
            assert!(found(krate, &format!("[dev-dependencies]\n{line}")).is_empty());
            assert_eq!(found(krate, &format!("[dependencies]\n{line}")).len(), 1);
        }
    }

    #[test]
    fn crates_for_tests_stay_in_tests() {
        for krate in ["stepped", "interleave"] {
            let line = format!("mmscale-{krate}.workspace = true\n");
            assert!(found("mm", &format!("[dev-dependencies]\n{line}")).is_empty());
            assert_eq!(found("mm", &format!("[dependencies]\n{line}")).len(), 1);
        }
    }

    #[test]
    fn what_is_bound_to_linux_is_optional() {
        for krate in ["harness", "calibrate"] {
            let optional = "[dependencies.mmscale-linux]\nworkspace = true\noptional = true\n";
            assert!(found(krate, optional).is_empty());
            assert_eq!(found(krate, "[dependencies]\nmmscale-linux.workspace = true\n").len(), 1);
        }
        assert!(found("live", "[dependencies]\nmmscale-linux.workspace = true\n").is_empty());
        assert_eq!(found("sim", "[dependencies]\naya.workspace = true\n").len(), 1);
    }

    #[test]
    fn libraries_stay_where_they_belong() {
        assert_eq!(found("harness", "[dependencies]\nanyhow.workspace = true\n").len(), 1);
        assert!(found("cli", "[dependencies]\nanyhow.workspace = true\n").is_empty());
    }

    #[test]
    fn a_crate_has_a_place_a_name_and_the_lints() {
        assert_eq!(found("attic", "").len(), 1);
        let text = "[package]\nname = \"mm\"\n";
        assert_eq!(check(&Tree::of(&[("crates/mm/Cargo.toml", text)])).len(), 2);
    }

    #[test]
    fn the_page_has_every_crate_with_what_it_may_use() {
        let rows: Vec<String> = HOUSE.iter().map(|room| format!("    {}\n", room.row())).collect();
        let page = |rows: &[String]| check(&Tree::of(&[(PAGE, &rows.concat())]));
        assert!(page(&rows).is_empty());
        assert_eq!(page(&rows[1..]).len(), 1, "a crate is missing");
        let mut more = rows.clone();
        more.push("    mm -> arch\n".to_owned());
        assert_eq!(page(&more).len(), 1, "a line that is not so");
        assert_eq!(page(&more)[0].line, rows.len() + 1);
        assert!(rows.concat().contains("    sim -> arch, document, files; in tests: frames, mm\n"));
    }

    #[test]
    fn crates_for_tests_and_others_do_not_share_a_folder() {
        let manifest = "[package]\nname = \"mmscale-peers\"\n[lints]\nworkspace = true\n";
        assert!(check(&Tree::of(&[("testing/peers/Cargo.toml", manifest)])).is_empty());
        assert_eq!(check(&Tree::of(&[("crates/peers/Cargo.toml", manifest)])).len(), 1);
    }
}
