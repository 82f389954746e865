//! The kernel's crates declare `no_std` and do not use std otherwise. `cargo xtask no-std` checks
//! that they also link without std.

use super::{Finding, Tree};
use proc_macro2::{TokenStream, TokenTree};

/// The crates that must run on a bare machine.
const CRATES: [&str; 5] = ["arch", "frames", "mm", "system", "kernel"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for krate in CRATES {
        let path = format!("crates/{krate}/src/lib.rs");
        let Some(source) = tree.source(&path) else { continue };
        let declared = source.syntax().is_some_and(|syntax| {
            syntax.attrs.iter().any(|attribute| attribute.meta.path().is_ident("no_std"))
        });
        if !declared {
            found.push(Finding::new(&path, 1, "no `#![no_std]`: this crate is part of a kernel"));
        }
    }
    let in_src = tree.rust().filter(|s| s.part() == "src");
    for source in in_src.filter(|s| s.krate().is_some_and(|krate| CRATES.contains(&krate))) {
        if let Ok(tokens) = source.text.parse::<TokenStream>() {
            search(tokens, &source.path, &mut found);
        }
    }
    found
}

/// Finds `std` as the first word of a path, and `extern crate std`.
fn search(tokens: TokenStream, path: &str, found: &mut Vec<Finding>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) => search(group.stream(), path, found),
            TokenTree::Ident(ident) if ident == "std" => {
                let after = tokens.get(at + 1).map(ToString::to_string);
                if matches!(after.as_deref(), Some(":" | ";")) {
                    let line = ident.span().start().line;
                    let what = "std in a kernel's crate: use core or alloc, and move tests that \
                                need std to `tests/`";
                    found.push(Finding::new(path, line, what));
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str) -> usize {
        check(&Tree::of(&[("crates/mm/src/lib.rs", text)])).len()
    }

    #[test]
    fn std_is_caught_at_every_door() {
        assert_eq!(count("#![no_std]\nuse core::fmt;\n"), 0);
        assert_eq!(count("use core::fmt;\n"), 1);
        assert_eq!(count("#![cfg_attr(not(test), no_std)]\n"), 1);
        assert_eq!(count("#![no_std]\nextern crate std;\n"), 1);
        assert_eq!(count("#![no_std]\nuse std::vec;\n"), 1);
        assert_eq!(count("#![no_std]\nfn f() { m!(std::println!()) }\n"), 1);
    }
}
