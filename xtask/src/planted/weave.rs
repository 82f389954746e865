//! Sources with all faults, each behind a switch.

use super::fault::{Edit, Fault};
use super::search::Tokens;
use std::ops::Range;

/// The place of the switch in [`Edit::to`].
const SWITCH: &str = "{on}";

/// The reason why a fault cannot be woven.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Problem {
    /// The name of the fault.
    pub(crate) fault: String,
    pub(crate) what: String,
}

/// A part of a source and the text in its place.
struct Change<'a> {
    fault: &'a Fault,
    bytes: Range<usize>,
    text: String,
}

/// Returns the path of the function that returns whether a fault is selected, in the source `file`.
pub(crate) fn switch(file: &str) -> &'static str {
    let is_arch = file.starts_with("crates/arch/");
    if is_arch { "crate::planted::on" } else { "::mmscale_arch::planted::on" }
}

/// Returns the source with all `faults`, which are numbered. `on` is the path of the function that
/// returns whether a fault is selected.
///
/// # Errors
/// The edits whose code does not occur exactly once, and those that overlap.
pub(crate) fn weave(
    source: &str,
    on: &str,
    faults: &[(usize, &Fault)],
) -> Result<String, Vec<Problem>> {
    let tokens = Tokens::of(source);
    let (mut changes, mut problems) = (Vec::new(), Vec::new());
    for &(number, fault) in faults {
        for edit in &fault.edits {
            match tokens.as_ref().map_err(Clone::clone).and_then(|tokens| place(tokens, edit)) {
                Ok(bytes) => {
                    let text = switched(&source[bytes.clone()], edit, &format!("{on}({number})"));
                    changes.push(Change { fault, bytes, text });
                }
                Err(what) => problems.push(Problem { fault: fault.name.clone(), what }),
            }
        }
    }
    changes.sort_by_key(|change| change.bytes.start);
    problems.extend(changes.windows(2).filter_map(overlap));
    if !problems.is_empty() {
        return Err(problems);
    }
    let mut woven = source.to_owned();
    for Change { bytes, text, .. } in changes.into_iter().rev() {
        woven.replace_range(bytes, &text);
    }
    Ok(woven)
}

/// Returns the one place of the edit's code.
fn place(source: &Tokens, edit: &Edit) -> Result<Range<usize>, String> {
    let places = source.places(&Tokens::of(&edit.from)?, edit.function.as_deref());
    let [place] = &places[..] else {
        let part = edit.function.as_ref().map_or(String::new(), |name| format!(" in `fn {name}`"));
        return Err(format!("`{}` occurs {} times{part}, not once", edit.from, places.len()));
    };
    Ok(place.clone())
}

/// Returns the problem of two changes if the second begins before the end of the first.
fn overlap(two: &[Change<'_>]) -> Option<Problem> {
    let [first, second] = two else { return None };
    (second.bytes.start < first.bytes.end).then(|| Problem {
        fault: second.fault.name.clone(),
        what: format!("changes code that `{}` changes too", first.fault.name),
    })
}

/// Returns the code `from` with the code of the edit next to it, which runs if `on` is true.
fn switched(from: &str, edit: &Edit, on: &str) -> String {
    let to = &edit.to;
    if to.contains(SWITCH) {
        to.replace(SWITCH, on)
    } else if from.ends_with([';', '}']) {
        format!("if {on} {{ {to} }} else {{ {from} }}")
    } else {
        format!("(if {on} {{ {to} }} else {{ {from} }})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planted::fault::{Expected, Fault};

    const SOURCE: &str =
        "fn f() {\n    let a = g(1);\n    if a > 1 && b() {\n        h(a);\n    }\n    h(2);\n}\n";

    fn fault(name: &str, edits: &[(&str, &str)]) -> Fault {
        let edit = |&(from, to): &(&str, &str)| Edit {
            function: None,
            from: from.to_owned(),
            to: to.to_owned(),
        };
        Fault {
            name: name.to_owned(),
            what: "It is wrong.".to_owned(),
            tests: "f".to_owned(),
            expected: Expected::Caught,
            file: "crates/mm/src/a.rs".to_owned(),
            edits: edits.iter().map(edit).collect(),
        }
    }

    fn woven(faults: &[Fault]) -> Result<String, Vec<Problem>> {
        weave(SOURCE, "on", &faults.iter().enumerate().collect::<Vec<_>>())
    }

    #[test]
    fn expressions_statements_and_declarations_are_switched() {
        let faults = [
            fault("unchecked", &[("a > 1 && b()", "true")]),
            fault("late", &[("h(a);", ""), ("h(2);", "h(2); h(1);")]),
            fault("lost", &[("let a = g(1);", "let a = if {on} { 0 } else { g(1) };")]),
        ];
        let wanted = "fn f() {\n    let a = if on(2) { 0 } else { g(1) };\n    \
            if (if on(0) { true } else { a > 1 && b() }) {\n        \
            if on(1) {  } else { h(a); }\n    }\n    \
            if on(1) { h(2); h(1); } else { h(2); }\n}\n";
        assert_eq!(woven(&faults).unwrap(), wanted);
    }

    #[test]
    fn code_that_occurs_twice_or_never_is_a_problem() {
        let problems = woven(&[fault("twice", &[("h", "g")]), fault("never", &[("h(3)", "g")])]);
        let problems = problems.unwrap_err();
        assert_eq!(problems[0].what, "`h` occurs 2 times, not once");
        assert_eq!(problems[1].fault, "never");
    }

    #[test]
    fn edits_that_overlap_are_a_problem() {
        let faults = [fault("all", &[("a > 1 && b()", "true")]), fault("part", &[("b()", "true")])];
        let what = "changes code that `all` changes too".to_owned();
        assert_eq!(woven(&faults), Err(vec![Problem { fault: "part".to_owned(), what }]));
    }
}
