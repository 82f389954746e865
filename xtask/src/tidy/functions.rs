//! Functions have at most 70 lines, from `fn` to the closing brace.

use super::{Finding, Tree};
use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

const LINES_MAX: usize = 70;

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

impl Finder<'_> {
    fn measure(&mut self, signature: &syn::Signature, end: Span) {
        let first = signature.fn_token.span.start().line;
        let lines = end.end().line - first + 1;
        if lines > LINES_MAX {
            let name = &signature.ident;
            let what = format!("`{name}` has {lines} lines; the limit is {LINES_MAX}: split it");
            self.found.push(Finding::new(self.path, first, what));
        }
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.measure(&item.sig, item.block.span());
        visit::visit_item_fn(self, item);
    }
    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.measure(&item.sig, item.block.span());
        visit::visit_impl_item_fn(self, item);
    }
    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.measure(&item.sig, block.span());
        }
        visit::visit_trait_item_fn(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<Finding> {
        check(&Tree::of(&[("crates/mm/src/a.rs", text)]))
    }

    #[test]
    fn long_functions_are_refused_wherever_they_stand() {
        let body = |lines: usize| format!("{{\n{}}}", "    f();\n".repeat(lines - 2));
        assert!(found(&format!("/// Long.\n/// Page.\nfn a() {}\n", body(70))).is_empty());
        let long = body(71);
        assert_eq!(found(&format!("fn a() {long}\n")).len(), 1);
        assert_eq!(found(&format!("impl A {{ fn a() {long} }}\n")).len(), 1);
        assert_eq!(found(&format!("trait A {{ fn a() {long} }}\n")).len(), 1);
        assert_eq!(found(&format!("mod m {{\n\nfn a() {long} }}\n"))[0].line, 3);
    }
}
