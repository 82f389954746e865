//! No circular dependencies between the modules of a crate.
//!
//! The children of every module must form an acyclic graph by the names that they use. A re-export
//! (`pub use` in a parent) counts as a reference to the module that it comes from. References from
//! a child to its own parent, and tests, are not checked.

use super::{Finding, Tree};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};

/// The path of a module: names from the crate's root.
type ModulePath = Vec<String>;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let crates: BTreeSet<&str> = tree.rust().filter_map(|source| source.krate()).collect();
    crates.into_iter().flat_map(|krate| check_crate(tree, krate)).collect()
}

fn check_crate(tree: &Tree, krate: &str) -> Vec<Finding> {
    let mut map = Map::default();
    for source in tree.rust().filter(|s| s.krate() == Some(krate) && s.part() == "src") {
        let (Some(place), Some(syntax)) = (place_of(&source.path), source.syntax()) else {
            continue;
        };
        let mut reader = Reader { path: &source.path, place, map: &mut map };
        reader.map.modules.insert(reader.place.clone());
        reader.visit_file(syntax);
    }
    map.findings()
}

/// Returns `["zone", "buddy"]` for `src/zone/buddy.rs`. Additional binaries are separate programs.
fn place_of(path: &str) -> Option<ModulePath> {
    let studies = path.strip_prefix("studies/");
    let inside = studies.or_else(|| Some(path.split_once("/src/")?.1))?.strip_suffix(".rs")?;
    let mut names: ModulePath = inside.split('/').map(str::to_owned).collect();
    if studies.is_some() {
        // `churn/churn.rs` is the module `churn`, and `studies.rs` the crate's root.
        match &names[..] {
            [_] => names.clear(),
            [folder, file] if folder == file => names.truncate(1),
            _ => {}
        }
        return Some(names);
    }
    if names[0] == "bin" {
        return None;
    }
    let last = names.last().map(String::as_str);
    if last == Some("mod") || names == ["lib"] || names == ["main"] {
        names.pop();
    }
    Some(names)
}

/// A path that a module uses.
struct Reference {
    from: ModulePath,
    to: ModulePath,
    path: String,
    line: usize,
}

/// The modules of one crate and their references.
#[derive(Default)]
struct Map {
    modules: BTreeSet<ModulePath>,
    /// The target of a name in a module: (module, name) -> module and item.
    exports: BTreeMap<(ModulePath, String), ModulePath>,
    references: Vec<Reference>,
}

impl Map {
    fn findings(&self) -> Vec<Finding> {
        // For each parent: child -> the children that it uses, with the reference.
        let mut graphs: BTreeMap<&[String], BTreeMap<&str, BTreeMap<String, &Reference>>> =
            BTreeMap::new();
        for reference in &self.references {
            let to = self.resolve(&reference.to);
            let common = reference.from.iter().zip(&to).take_while(|(a, b)| a == b).count();
            if common < reference.from.len() && common < to.len() {
                let graph = graphs.entry(&reference.from[..common]).or_default();
                let edges = graph.entry(&reference.from[common]).or_default();
                edges.entry(to[common].clone()).or_insert(reference);
            }
        }
        graphs.values().flat_map(circles_of).collect()
    }
    /// Returns the module that contains `place`, following re-exports.
    fn resolve(&self, place: &[String]) -> ModulePath {
        let mut place = place.to_vec();
        let mut at = 0;
        // A chain of re-exports is short; the bound only ends circular ones.
        for _ in 0..100 {
            if at == place.len() {
                break;
            }
            if self.modules.contains(&place[..=at]) {
                at += 1;
            } else if let Some(real) = self.exports.get(&(place[..at].to_vec(), place[at].clone()))
            {
                let mut next = real.clone();
                next.extend_from_slice(&place[at + 1..]);
                place = next;
                at = 0;
            } else {
                break;
            }
        }
        place.truncate(at);
        place
    }
}

/// Returns one finding per edge that closes a circle, at the line of the reference.
fn circles_of(graph: &BTreeMap<&str, BTreeMap<String, &Reference>>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (&from, edges) in graph {
        for (to, reference) in edges {
            if let Some(way) = way_between(graph, to, from) {
                let circle = way.join(" -> ");
                let what =
                    format!("circular modules: {from} -> {circle}: remove one of these references");
                found.push(Finding::new(&reference.path, reference.line, what));
            }
        }
    }
    found
}

/// Returns the modules on a shortest path from `from` to `to`, both included.
fn way_between(
    graph: &BTreeMap<&str, BTreeMap<String, &Reference>>,
    from: &str,
    to: &str,
) -> Option<Vec<String>> {
    let mut ways = vec![vec![from.to_owned()]];
    let mut seen = BTreeSet::from([from.to_owned()]);
    let mut next = 0;
    while next < ways.len() {
        let way = ways[next].clone();
        next += 1;
        let last = &way[way.len() - 1];
        if last == to {
            return Some(way);
        }
        for step in graph.get(last.as_str()).into_iter().flat_map(BTreeMap::keys) {
            if seen.insert(step.clone()) {
                let mut longer = way.clone();
                longer.push(step.clone());
                ways.push(longer);
            }
        }
    }
    None
}

/// Reads one file into the map.
struct Reader<'a> {
    path: &'a str,
    place: ModulePath,
    map: &'a mut Map,
}

impl Reader<'_> {
    /// Returns the module path of a path that begins with `crate`, `self` or `super`, or (in a
    /// `use`) with a child of this module.
    fn absolute(&self, names: &[String], in_use: bool) -> Option<ModulePath> {
        let mut place = self.place.clone();
        let mut rest = names;
        match names.first()?.as_str() {
            "crate" => {
                place.clear();
                rest = &names[1..];
            }
            "self" => rest = &names[1..],
            "super" => {}
            _ if in_use => {}
            _ => return None,
        }
        while rest.first().is_some_and(|name| name == "super") {
            place.pop();
            rest = &rest[1..];
        }
        place.extend_from_slice(rest);
        Some(place)
    }
    fn refer(&mut self, names: &[String], line: usize) {
        if let Some(to) = self.absolute(names, false) {
            let (from, path) = (self.place.clone(), self.path.to_owned());
            self.map.references.push(Reference { from, to, path, line });
        }
    }
    /// Walks a `use` tree; each leaf is a reference and an export of this module.
    fn import(&mut self, tree: &syn::UseTree, names: &mut ModulePath) {
        match tree {
            syn::UseTree::Path(path) => {
                names.push(path.ident.to_string());
                self.import(&path.tree, names);
                names.pop();
            }
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|item| self.import(item, names));
            }
            syn::UseTree::Name(name) => self.leaf(names, &name.ident, &name.ident),
            syn::UseTree::Rename(rename) => self.leaf(names, &rename.ident, &rename.rename),
            syn::UseTree::Glob(glob) => self.refer(names, glob.star_token.spans[0].start().line),
        }
    }
    fn leaf(&mut self, names: &[String], ident: &syn::Ident, known_as: &syn::Ident) {
        let mut full = names.to_vec();
        if ident != "self" {
            full.push(ident.to_string());
        }
        let line = ident.span().start().line;
        self.refer(&full, line);
        if let Some(place) = self.absolute(&full, true) {
            let name = if known_as == "self" { names.last() } else { None };
            let name = name.cloned().unwrap_or_else(|| known_as.to_string());
            if place != [self.place.as_slice(), std::slice::from_ref(&name)].concat() {
                self.map.exports.insert((self.place.clone(), name), place);
            }
        }
    }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
    })
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if is_test(&item.attrs) {
            return;
        }
        self.place.push(item.ident.to_string());
        if item.content.is_some() {
            self.map.modules.insert(self.place.clone());
        }
        visit::visit_item_mod(self, item);
        self.place.pop();
    }
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !is_test(&item.attrs) {
            self.import(&item.tree, &mut Vec::new());
        }
    }
    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: ModulePath = path.segments.iter().map(|s| s.ident.to_string()).collect();
        let line = path.segments.first().map_or(0, |s| s.ident.span().start().line);
        self.refer(&names, line);
        visit::visit_path(self, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<Finding> {
        let files: Vec<(String, &str)> =
            files.iter().map(|(path, text)| (format!("crates/mm/src/{path}"), *text)).collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(p, t)| (p.as_str(), *t)).collect();
        check(&Tree::of(&files))
    }

    #[test]
    fn a_circle_is_caught_from_both_sides() {
        let one_way = [("a.rs", "use crate::b::B;\n"), ("b.rs", "pub struct B;\n")];
        assert!(found(&one_way).is_empty());
        let both = [("a.rs", "use crate::b::B;\n"), ("b/mod.rs", "fn f() { super::a::g() }\n")];
        let circle = found(&both);
        assert_eq!(circle.len(), 2);
        assert!(circle[0].what.contains("a -> b -> a"), "{}", circle[0].what);
    }

    #[test]
    fn a_circle_of_three_and_one_below_the_top_are_caught() {
        let three = [
            ("a.rs", "use crate::{b::B, x};\n"),
            ("b.rs", "\nuse crate::c::*;\n"),
            ("c/deep.rs", "type A = crate::a::A;\n"),
            ("c/mod.rs", ""),
        ];
        assert_eq!(found(&three).len(), 3);
        let below =
            [("m/mod.rs", ""), ("m/a.rs", "use super::b::B;\n"), ("m/b.rs", "use super::a::A;\n")];
        assert_eq!(found(&below).len(), 2);
    }

    #[test]
    fn re_exports_are_followed() {
        let hidden = [
            ("lib.rs", "pub use a::A;\nmod a;\nmod b;\n"),
            ("a.rs", "use crate::b::B;\npub struct A;\n"),
            ("b.rs", "use crate::A;\npub struct B;\n"),
        ];
        assert_eq!(found(&hidden).len(), 2);
    }

    #[test]
    fn parents_and_tests_make_no_circle() {
        let parent = [
            ("m/mod.rs", "mod a;\npub use a::A;\npub struct P;\n"),
            ("m/a.rs", "use super::P;\npub struct A;\n"),
        ];
        assert!(found(&parent).is_empty());
        let test = [
            ("a.rs", "use crate::b::B;\n"),
            ("b.rs", "#[cfg(test)]\nmod tests { use crate::a::A; }\n"),
        ];
        assert!(found(&test).is_empty());
    }
}
