//! Lints are disabled by `expect` with a reason, tests by `ignore` with a reason.

use super::{Finding, Tree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for source in tree.rust() {
        let Some(syntax) = source.syntax() else { continue };
        let mut finder = Finder { path: &source.path, found: &mut found };
        finder.visit_file(syntax);
    }
    found
}

struct Finder<'a> {
    path: &'a str,
    found: &'a mut Vec<Finding>,
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        let meta = &attribute.meta;
        let what = if meta.path().is_ident("allow") {
            Some("`allow` outlives its cause: use `expect(lint, reason = \"..\")`")
        } else if meta.path().is_ident("ignore") && !matches!(meta, syn::Meta::NameValue(_)) {
            Some("a test is ignored without a reason: use `#[ignore = \"..\"]` or run it")
        } else if meta.path().is_ident("expect") && !has_reason(meta) {
            Some("`expect` without a reason: add `reason = \"..\"`")
        } else {
            None
        };
        if let Some(what) = what {
            self.found.push(Finding::new(self.path, attribute.span().start().line, what));
        }
        visit::visit_attribute(self, attribute);
    }
}

fn has_reason(meta: &syn::Meta) -> bool {
    let syn::Meta::List(list) = meta else { return false };
    list.tokens.clone().into_iter().any(|token| token.to_string() == "reason")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str) -> usize {
        check(&Tree::of(&[("crates/mm/src/a.rs", text)])).len()
    }

    #[test]
    fn reasons_are_asked_for() {
        assert_eq!(count("#[allow(dead_code)]\nfn a() {}\n"), 1);
        assert_eq!(count("#![allow(dead_code)]\n"), 1);
        assert_eq!(count("#[expect(dead_code)]\nfn a() {}\n"), 1);
        assert_eq!(count("#[expect(dead_code, reason = \"why\")]\nfn a() {}\n"), 0);
        assert_eq!(count("#[test]\n#[ignore]\nfn a() {}\n"), 1);
        assert_eq!(count("#[test]\n#[ignore = \"needs root\"]\nfn a() {}\n"), 0);
    }
}
