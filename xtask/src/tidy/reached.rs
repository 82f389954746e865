//! Every Rust file of a crate belongs to one of its programs.
//!
//! Cargo finds the roots of programs by itself, unless the manifest disables that (`autotests =
//! false`). Starting at a root, a file is compiled only if a module names it. A file that no module
//! names is silently neither compiled nor tested. Files that only another crate includes, by
//! `#[path]`, are findings, too.

use super::links::resolve;
use super::{Finding, Source, Tree};
use std::collections::BTreeSet;
use syn::visit::{self, Visit};
use toml::{Table, Value};

/// Folders of programs: the folder, its name in the manifest, and the key that disables Cargo's
/// automatic discovery.
const KINDS: [(&str, &str, &str); 4] = [
    ("src/bin", "bin", "autobins"),
    ("tests", "test", "autotests"),
    ("benches", "bench", "autobenches"),
    ("examples", "example", "autoexamples"),
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for manifest in tree.sources() {
        let Some(home) = manifest.path.strip_suffix("Cargo.toml") else { continue };
        // Invalid TOML is a finding of another rule.
        let Ok(table) = manifest.text.parse::<Table>() else { continue };
        if !home.is_empty() {
            check_crate(tree, home, &table, &mut found);
        }
    }
    found
}

fn check_crate(tree: &Tree, home: &str, manifest: &Table, found: &mut Vec<Finding>) {
    let mut reached = Reached { tree, files: BTreeSet::new() };
    for root in roots(tree, home, manifest) {
        reached.add(&root, folder_of(&root));
    }
    let ours = tree.rust().filter(|source| source.path.starts_with(home));
    for source in ours.filter(|s| matches!(s.part(), "src" | "tests" | "benches" | "examples")) {
        if !reached.files.contains(&source.path) {
            let what = "no program of this crate includes this file, so it is neither compiled nor \
                        run: declare it (`mod ..;`) in its parent module, down from a root such as \
                        `tests/main.rs`";
            found.push(Finding::new(&source.path, 0, what));
        }
    }
}

/// Returns the root files of a crate's programs: those in the manifest, and those that Cargo
/// discovers.
fn roots(tree: &Tree, home: &str, manifest: &Table) -> Vec<String> {
    let mut roots = vec![format!("{home}src/lib.rs"), format!("{home}src/main.rs")];
    let library = manifest.get("lib").and_then(|lib| lib.get("path")).and_then(Value::as_str);
    roots.extend(library.map(|path| format!("{home}{path}")));
    let package = manifest.get("package");
    for (folder, kind, auto) in KINDS {
        let named = manifest.get(kind).and_then(Value::as_array);
        for target in named.into_iter().flatten() {
            let text = |key: &str| target.get(key).and_then(Value::as_str);
            // Cargo uses the name only if there is no path.
            match (text("path"), text("name")) {
                (Some(path), _) => roots.push(format!("{home}{path}")),
                (None, Some(name)) => {
                    roots.push(format!("{home}{folder}/{name}.rs"));
                    roots.push(format!("{home}{folder}/{name}/main.rs"));
                }
                (None, None) => {}
            }
        }
        let off = package.and_then(|package| package.get(auto)).and_then(Value::as_bool);
        if off != Some(false) {
            let place = format!("{home}{folder}/");
            let files = tree.rust().map(|source| source.path.as_str());
            roots.extend(files.filter(|path| is_root(path, &place)).map(str::to_owned));
        }
    }
    roots
}

/// Returns whether a file is a root: in `tests/`, these are `tests/x.rs` and `tests/x/main.rs`.
fn is_root(path: &str, folder: &str) -> bool {
    let parts = path.strip_prefix(folder).map(|rest| rest.split('/').collect::<Vec<_>>());
    matches!(parts.as_deref(), Some([_] | [_, "main.rs"]))
}

fn folder_of(path: &str) -> String {
    path.rsplit_once('/').map_or(String::new(), |(folder, _)| format!("{folder}/"))
}

/// The files of one crate that are compiled.
struct Reached<'a> {
    tree: &'a Tree,
    files: BTreeSet<String>,
}

impl Reached<'_> {
    /// Adds the file at `path`, whose modules are in `folder`, and all modules that it declares.
    fn add(&mut self, path: &str, folder: String) {
        let Some(source) = self.tree.source(path) else { return };
        if !self.files.insert(path.to_owned()) {
            return;
        }
        if let Some(syntax) = source.syntax() {
            Modules { source, folder, reached: self }.visit_file(syntax);
        }
    }
}

/// Walks one file for the modules that it declares.
struct Modules<'a, 'b> {
    source: &'a Source,
    folder: String,
    reached: &'a mut Reached<'b>,
}

impl<'ast> Visit<'ast> for Modules<'_, '_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let inside = format!("{}{}/", self.folder, item.ident);
        if item.content.is_some() {
            let around = std::mem::replace(&mut self.folder, inside);
            visit::visit_item_mod(self, item);
            self.folder = around;
        } else if let Some(path) = item.attrs.iter().find_map(path_attribute) {
            let path = resolve(&self.source.path, &path);
            self.reached.add(&path, folder_of(&path));
        } else {
            self.reached.add(&format!("{}{}.rs", self.folder, item.ident), inside.clone());
            self.reached.add(&format!("{inside}mod.rs"), inside);
        }
    }
}

/// Returns the value of `#[path = "..."]`.
fn path_attribute(attribute: &syn::Attribute) -> Option<String> {
    let syn::Meta::NameValue(pair) = &attribute.meta else { return None };
    let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(path), .. }) = &pair.value else {
        return None;
    };
    pair.path.is_ident("path").then(|| path.value())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE_PROGRAM: &str = "[package]\nautotests = false\n\
                               [[test]]\nname = \"rules\"\npath = \"tests/main.rs\"\n";

    /// Returns the files that are not reached in a crate with `manifest`.
    fn forgotten(manifest: &str, files: &[(&str, &str)]) -> Vec<String> {
        let home = |path: &str| format!("crates/mm/{path}");
        let mut all = vec![(home("Cargo.toml"), manifest)];
        all.extend(files.iter().map(|(path, text)| (home(path), *text)));
        let all: Vec<(&str, &str)> =
            all.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let found = check(&Tree::of(&all));
        found.iter().map(|found| found.path["crates/mm/".len()..].to_owned()).collect()
    }

    #[test]
    fn a_test_that_the_program_does_not_name_is_caught() {
        let named = ("tests/main.rs", "mod swap;\n");
        let files = [named, ("tests/swap.rs", ""), ("tests/zone.rs", "#[test]\nfn f() {}\n")];
        assert_eq!(forgotten(ONE_PROGRAM, &files), ["tests/zone.rs"]);
        assert!(forgotten("", &files).is_empty(), "Cargo finds it by itself");
        let below = [named, ("tests/swap/mod.rs", "mod a;\n"), ("tests/swap/a.rs", "")];
        assert!(forgotten(ONE_PROGRAM, &below).is_empty());
        let files = [named, ("tests/swap/mod.rs", ""), ("tests/swap/a.rs", "")];
        assert_eq!(forgotten(ONE_PROGRAM, &files), ["tests/swap/a.rs"]);
    }

    #[test]
    fn a_program_that_the_manifest_lost_is_caught() {
        let off = "[package]\nautotests = false\n";
        assert_eq!(forgotten(off, &[("tests/main.rs", "")]), ["tests/main.rs"]);
        let bench = "[package]\nautobenches = false\n[[bench]]\nname = \"a\"\n";
        assert_eq!(
            forgotten(bench, &[("benches/a.rs", ""), ("benches/b.rs", "")]),
            ["benches/b.rs"]
        );
    }

    #[test]
    fn modules_are_found_where_the_compiler_looks() {
        let files = [
            ("src/lib.rs", "mod a;\n#[cfg(test)]\nmod tests { mod deep; }\n"),
            ("src/a.rs", "mod b;\n"),
            ("src/a/b.rs", ""),
            ("src/tests/deep.rs", ""),
            ("src/b.rs", ""),
            ("tests/one/main.rs", "#[path = \"../two/mod.rs\"]\nmod two;\n"),
            ("tests/two/mod.rs", "mod three;\n"),
            ("tests/two/three.rs", ""),
            ("tests/two/four.rs", ""),
        ];
        assert_eq!(forgotten("", &files), ["src/b.rs", "tests/two/four.rs"]);
    }
}
