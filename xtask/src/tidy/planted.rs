//! Every planted fault of `testing/faults.toml` has its place in the sources.
//!
//! An edit whose code is gone would stop `cargo xtask planted`; one whose code occurs twice would
//! be in the wrong place.

use super::{Finding, Tree};
use crate::planted::fault::{self, DECLARED, Expected, Fault};
use crate::planted::weave::{self, Problem};
use std::collections::BTreeSet;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(source) = tree.source(DECLARED) else { return Vec::new() };
    let faults = match fault::parse(&source.text) {
        Ok(faults) => faults,
        Err(why) => return vec![Finding::new(DECLARED, 1, why)],
    };
    let mut problems: Vec<Problem> = faults.iter().flat_map(described).collect();
    let mut names = BTreeSet::new();
    problems.extend(
        faults
            .iter()
            .filter(|fault| !names.insert(&fault.name))
            .map(|fault| problem(fault, "has the name of another fault")),
    );
    problems.extend(fault::by_file(&faults).into_iter().flat_map(|file| placed(tree, file)));
    let line = |name: &str| {
        let row = format!("name = \"{name}\"");
        source.text.lines().position(|line| line == row).map_or(1, |line| line + 1)
    };
    problems
        .into_iter()
        .map(|Problem { fault, what }| {
            Finding::new(DECLARED, line(&fault), format!("{fault}: {what}"))
        })
        .collect()
}

fn problem(fault: &Fault, what: &str) -> Problem {
    Problem { fault: fault.name.clone(), what: what.to_owned() }
}

/// Returns the problems of the fault's description.
fn described(fault: &Fault) -> Vec<Problem> {
    let Fault { name, what, tests, expected, file, edits } = fault;
    let is_plain = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
    let is_sentence = what.ends_with('.') && !what.trim_end_matches('.').contains(". ");
    let is_source = file.strip_prefix("crates/").is_some_and(|rest| rest.contains("/src/"));
    [
        (is_plain, "a name has small letters and `-` only"),
        (is_sentence, "`what` is not one sentence"),
        (!tests.is_empty(), "`tests` names no tests"),
        (*expected != Expected::Missed(String::new()), "`missed` has no reason"),
        (is_source, "`file` is no source of a crate in `crates`"),
        (!edits.is_empty(), "changes nothing"),
    ]
    .into_iter()
    .filter(|(is_right, _)| !is_right)
    .map(|(_, what)| problem(fault, what))
    .collect()
}

/// Returns the problems of the faults in a file: their code is not there once, or the code in its
/// place is no Rust code.
fn placed(tree: &Tree, (file, faults): (&str, Vec<(usize, &Fault)>)) -> Vec<Problem> {
    let Some(source) = tree.source(file) else {
        return faults.iter().map(|(_, fault)| problem(fault, "`file` does not exist")).collect();
    };
    match weave::weave(&source.text, weave::switch(file), &faults) {
        Err(problems) => problems,
        Ok(woven) => syn::parse_file(&woven)
            .err()
            .and_then(|why| Some(problem(faults.first()?.1, &format!("{file}, woven: {why}"))))
            .into_iter()
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: &str = "[[fault]]\nname = \"lock-open\"\nwhat = 'The lock stays open.'\n\
        tests = 'locks'\nexpected = 'caught'\nfile = 'crates/mm/src/a.rs'\n\
        [[fault.edit]]\nfrom = 'lock();'\nto = ''\n";

    fn found(faults: &str, source: &str) -> Vec<String> {
        let tree = Tree::of(&[(DECLARED, faults), ("crates/mm/src/a.rs", source)]);
        check(&tree).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn code_that_is_gone_or_occurs_twice_is_found() {
        assert!(found(ROW, "fn f() { lock(); }").is_empty());
        assert_eq!(found(ROW, "fn f() {}").len(), 1);
        assert_eq!(found(ROW, "fn f() { lock(); lock(); }").len(), 1);
        let elsewhere = found(&ROW.replace("a.rs", "b.rs"), "fn f() { lock(); }");
        assert_eq!(elsewhere, ["lock-open: `file` does not exist"]);
    }

    #[test]
    fn a_fault_without_a_description_is_found() {
        let source = "fn f() { lock(); }";
        assert_eq!(found(&ROW.replace("open.'", "open. It is'"), source).len(), 1);
        assert_eq!(found(&ROW.replace("'locks'", "''"), source).len(), 1);
        assert_eq!(found(&ROW.replace("'caught'", "{ missed = '' }"), source).len(), 1);
        assert_eq!(found(&ROW.replace("lock-open", "Lock"), source).len(), 1);
    }

    #[test]
    fn names_are_unique_and_woven_sources_are_rust() {
        let twice = [ROW, &ROW.replace("lock();", "unlock();")].concat();
        let source = "fn f() { lock(); unlock(); }";
        assert_eq!(found(&twice, source), ["lock-open: has the name of another fault"]);
        assert_eq!(found(&ROW.replace("to = ''", "to = 'lock('"), source).len(), 1);
    }
}
