//! The memory manager uses integers only, because kernels avoid floating point.

use super::{Finding, Source, Tree};
use proc_macro2::{TokenStream, TokenTree};

/// The crates of the memory manager.
const CRATES: [&str; 3] = ["arch", "frames", "mm"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    let concerned = |source: &&Source| {
        source.krate().is_some_and(|krate| CRATES.contains(&krate)) && source.part() == "src"
    };
    for source in tree.rust().filter(concerned) {
        if let Ok(tokens) = source.text.parse::<TokenStream>() {
            search(tokens, &source.path, &mut found);
        }
    }
    found
}

fn search(tokens: TokenStream, path: &str, found: &mut Vec<Finding>) {
    for token in tokens {
        let line = token.span().start().line;
        let wrong = match token {
            TokenTree::Group(group) => {
                search(group.stream(), path, found);
                false
            }
            TokenTree::Ident(ident) => ident == "f32" || ident == "f64",
            TokenTree::Literal(literal) => matches!(syn::Lit::new(literal), syn::Lit::Float(_)),
            TokenTree::Punct(_) => false,
        };
        if wrong {
            found.push(Finding::new(
                path,
                line,
                "floating point in the memory manager: use scaled integers",
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_caught_in_mm_only() {
        let text = "fn a(x: u64) -> u64 {\n    x * 7 / 8\n}\n// 0.5 as f64\n";
        let float = "fn a(x: f64) -> u64 {\n    assert!(x > 0.5);\n    1\n}\n";
        assert!(check(&Tree::of(&[("crates/mm/src/a.rs", text)])).is_empty());
        assert!(check(&Tree::of(&[("crates/harness/src/a.rs", float)])).is_empty());
        let found = check(&Tree::of(&[("crates/mm/src/a.rs", float)]));
        assert_eq!(found.iter().map(|f| f.line).collect::<Vec<_>>(), [1, 2]);
    }
}
