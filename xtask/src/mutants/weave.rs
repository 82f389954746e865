//! Sources that contain every mutant of the sample. A switch enables one mutant at a time.
//!
//! A build for each mutant would take minutes; with switches one build is enough. `a + b` becomes
//! `(if on(7) { a - b } else { a + b })`, and a function that returns another value gets
//! `if on(8) { return 0; }` as its first statement.

use super::list::{At, Mutant, bytes};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Arm, Expr, ExprBinary, ExprUnary, Pat};

/// A source with switches.
pub(super) struct Woven {
    pub(super) text: String,
    /// The places in `text` of each mutant's switch and of the code that it switches.
    pub(super) switches: Vec<Switch>,
    /// The mutants that cannot be switched.
    pub(super) alone: Vec<usize>,
}

/// A mutant's place in a woven source, in bytes.
pub(super) struct Switch {
    pub(super) id: usize,
    /// The text inserted before the code.
    pub(super) inserted: Range<usize>,
    /// The switch and the code that it switches.
    pub(super) whole: Range<usize>,
}

/// Text around a part of a source.
struct Wrap {
    id: usize,
    range: Range<usize>,
    before: String,
    after: &'static str,
}

/// Adds a switch for each of `mutants` to their source. `on` is the path of the function that
/// returns whether a mutant is enabled.
pub(super) fn weave(source: &str, on: &str, mutants: &[(usize, &Mutant)]) -> Woven {
    let mut places = Places::default();
    if let Ok(file) = syn::parse_file(source) {
        places.visit_file(&file);
    }
    let (mut wraps, mut alone) = (Vec::new(), Vec::new());
    for &(id, mutant) in mutants {
        match wrap(source, on, id, mutant, &places) {
            Some(wrap) => wraps.push(wrap),
            None => alone.push(id),
        }
    }
    // Outermost ranges first. For equal ranges, a function's first statement is outside its
    // expression.
    wraps.sort_by_key(|wrap| {
        (wrap.range.start, Reverse(wrap.range.end), !wrap.after.is_empty(), wrap.id)
    });
    let mut woven = Woven { text: String::new(), switches: Vec::new(), alone };
    let (mut open, mut next) = (Vec::<(usize, &Wrap)>::new(), wraps.iter().peekable());
    for (at, char) in source.char_indices() {
        while let Some((index, wrap)) = open.pop_if(|(_, wrap)| wrap.range.end <= at) {
            woven.text.push_str(wrap.after);
            woven.switches[index].whole.end = woven.text.len();
        }
        while let Some(wrap) = next.next_if(|wrap| wrap.range.start <= at) {
            let start = woven.text.len();
            woven.text.push_str(&wrap.before);
            let (inserted, whole) = (start..woven.text.len(), start..woven.text.len());
            open.push((woven.switches.len(), wrap));
            woven.switches.push(Switch { id: wrap.id, inserted, whole });
        }
        woven.text.push(char);
    }
    woven
}

/// Returns the text that enables one mutant.
fn wrap(source: &str, on: &str, id: usize, mutant: &Mutant, places: &Places) -> Option<Wrap> {
    let changed = bytes(source, mutant.span.start, mutant.span.end);
    let replacement = &mutant.replacement;
    let (range, before, after) = match mutant.genre.as_str() {
        "FnValue" => (changed, format!("if {on}({id}) {{ return {replacement}; }} "), ""),
        "BinaryOperator" | "UnaryOperator" => {
            let range = places.operators.get(&mutant.span.start)?;
            let range = bytes(source, range.0, range.1);
            let (left, right) =
                (&source[range.start..changed.start], &source[changed.end..range.end]);
            let other = format!("{left}{replacement}{right}");
            (range, format!("(if {on}({id}) {{ {other} }} else {{ "), " })")
        }
        "MatchArmGuard" => (changed, format!("(if {on}({id}) {{ {replacement} }} else {{ "), " })"),
        "MatchArm" => match places.arms.get(&mutant.span.start)? {
            (_, Some(guard)) => (bytes(source, guard.0, guard.1), format!("!{on}({id}) && ("), ")"),
            (end, None) => (bytes(source, *end, *end), format!(" if !{on}({id})"), ""),
        },
        _ => return None,
    };
    Some(Wrap { id, range, before, after })
}

/// A part of a source.
type Part = (At, At);

/// Places in a source that can be switched.
#[derive(Default)]
struct Places {
    /// Expressions with an operator, by the operator's place.
    operators: BTreeMap<At, Part>,
    /// The end of an arm's pattern, and its guard, by the arm's place.
    arms: BTreeMap<At, (At, Option<Part>)>,
}

fn part(of: &impl Spanned) -> Part {
    let at = |place: proc_macro2::LineColumn| At { line: place.line, column: place.column + 1 };
    (at(of.span().start()), at(of.span().end()))
}

/// Returns whether the expression is a condition that binds names, which has no value of its own.
fn binds(expr: &Expr) -> bool {
    match expr {
        Expr::Let(_) => true,
        Expr::Binary(ExprBinary { left, right, .. }) => binds(left) || binds(right),
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Places {
    fn visit_expr_binary(&mut self, expr: &'ast ExprBinary) {
        if !binds(&expr.left) && !binds(&expr.right) {
            self.operators.insert(part(&expr.op).0, part(expr));
        }
        visit::visit_expr_binary(self, expr);
    }
    fn visit_expr_unary(&mut self, expr: &'ast ExprUnary) {
        self.operators.insert(part(&expr.op).0, part(expr));
        visit::visit_expr_unary(self, expr);
    }
    fn visit_arm(&mut self, arm: &'ast Arm) {
        let guard = match &arm.pat {
            Pat::Guard(with) => Some(part(&with.guard)),
            _ => None,
        };
        self.arms.insert(part(arm).0, (part(&arm.pat).1, guard));
        visit::visit_arm(self, arm);
    }
}

#[cfg(test)]
mod tests {
    use super::super::list::Span;
    use super::*;

    /// Returns the mutant of `genre` that replaces the first `text` of `source`.
    fn mutant(source: &str, genre: &str, text: &str, replacement: &str) -> Mutant {
        let byte = source.find(text).expect("the source has it");
        let line = source[..byte].matches('\n').count() + 1;
        let column = byte - source[..byte].rfind('\n').map_or(0, |newline| newline + 1) + 1;
        let start = At { line, column };
        Mutant {
            name: format!("a.rs:{line}:{column}: {text}"),
            package: "mmscale-mm".to_owned(),
            file: "a.rs".to_owned(),
            genre: genre.to_owned(),
            replacement: replacement.to_owned(),
            span: Span { start, end: At { line, column: column + text.len() } },
        }
    }

    #[test]
    fn operators_in_one_another_and_a_function_have_a_switch_each() {
        let source = "fn f(a: u32) -> u32 {\n    a * (a + 1)\n}\n";
        let inner = mutant(source, "BinaryOperator", "+", "-");
        let outer = mutant(source, "BinaryOperator", "*", "/");
        let value = mutant(source, "FnValue", "a * (a + 1)", "0");
        let woven = weave(source, "on", &[(0, &inner), (1, &outer), (2, &value)]);
        let wanted = "if on(2) { return 0; } (if on(1) { a / (a + 1) } else { \
                      a * ((if on(0) { a - 1 } else { a + 1 })) })";
        assert_eq!(woven.text, source.replace("a * (a + 1)", wanted));
        let ids: Vec<usize> = woven.switches.iter().map(|switch| switch.id).collect();
        assert_eq!((ids, woven.alone), (vec![2, 1, 0], vec![]));
        assert_eq!(
            &woven.text[woven.switches[2].whole.clone()],
            "(if on(0) { a - 1 } else { a + 1 })"
        );
    }

    #[test]
    fn an_arm_is_switched_by_its_guard() {
        let source = "fn f(a: u32) { match a { 1 => {} 2 if a < 3 => {} _ => {} } }";
        let bare = mutant(source, "MatchArm", "1 => {}", "");
        let guarded = mutant(source, "MatchArm", "2 if a < 3 => {}", "");
        let guard = mutant(source, "MatchArmGuard", "a < 3", "true");
        let woven = weave(source, "on", &[(0, &bare), (1, &guarded), (2, &guard)]).text;
        assert!(woven.contains("{ 1 if !on(0) => {} 2 if !on(1) && ("), "{woven}");
        assert!(woven.contains("(if on(2) { true } else { a < 3 })"), "{woven}");
    }

    #[test]
    fn what_has_no_value_of_its_own_stays_alone() {
        let source = "fn f(a: Option<u32>) { if let Some(_) = a && true {} }";
        let chain = mutant(source, "BinaryOperator", "&&", "||");
        let field = mutant(source, "StructField", "true", "");
        let woven = weave(source, "on", &[(0, &chain), (1, &field)]);
        assert_eq!((woven.text.as_str(), woven.alone), (source, vec![0, 1]));
        assert!(chain.applied(source).contains("= a || true"));
    }
}
