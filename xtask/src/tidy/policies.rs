//! Every mechanism with policies is in the list of mechanisms, `mmscale_mm::policy`.
//!
//! The policies of a mechanism are declared by `policies!`, from which lists, parsers and help
//! texts take the names. A mechanism whose enum is declared otherwise, or is not in the list, would
//! be missing on the command line, in documents and in the test that runs every policy.

use super::{Finding, Tree};
use proc_macro2::{TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// The path of the list.
const LIST: &str = "crates/mm/src/policy.rs";

/// Crates with mechanisms.
const CRATES: [&str; 3] = ["arch", "frames", "mm"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let listed = tree.source(LIST).map_or("", |source| source.text.as_str());
    let mut found = Vec::new();
    let own = |krate: Option<&str>| krate.is_some_and(|krate| CRATES.contains(&krate));
    for source in tree.rust().filter(|source| own(source.krate()) && source.part() == "src") {
        let Some(syntax) = source.syntax() else { continue };
        let mut enums = Enums::default();
        enums.visit_file(syntax);
        for (name, line) in enums.declared {
            if !listed.contains(&format!("mechanism!({name}, ")) {
                let what = format!("`{name}` is not in {LIST}: add mechanism!({name}, FIELD)");
                found.push(Finding::new(&source.path, line, what));
            }
        }
        for (name, line) in enums.plain {
            let what = format!(
                "`{name}` is a plain enum: declare it with `policies!`, or rename it if it is a \
                 setting"
            );
            found.push(Finding::new(&source.path, line, what));
        }
    }
    found
}

/// The enums of a file, with their line numbers.
#[derive(Default)]
struct Enums {
    /// Enums declared by `policies!`.
    declared: Vec<(String, usize)>,
    /// Enums named like a policy, but not declared by `policies!`.
    plain: Vec<(String, usize)>,
}

impl<'ast> Visit<'ast> for Enums {
    fn visit_item_macro(&mut self, item: &'ast syn::ItemMacro) {
        let path = &item.mac.path;
        if path.segments.last().is_some_and(|last| last.ident == "policies")
            && let Some(name) = enum_name(item.mac.tokens.clone())
        {
            self.declared.push((name, path.span().start().line));
        }
        visit::visit_item_macro(self, item);
    }
    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        let name = item.ident.to_string();
        if name.ends_with("Policy") {
            self.plain.push((name, item.enum_token.span().start().line));
        }
        visit::visit_item_enum(self, item);
    }
}

/// Returns the word after `enum`.
fn enum_name(tokens: TokenStream) -> Option<String> {
    let words = |token| match token {
        TokenTree::Ident(word) => Some(word.to_string()),
        _ => None,
    };
    tokens.into_iter().filter_map(words).skip_while(|word| word != "enum").nth(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DECLARED: &str = r#"crate::policies! {
    /// A.
    pub enum TeaPolicy: "tea", "how tea is made" { A = "a" }
}
"#;

    fn found(path: &str, text: &str, list: &str) -> Vec<Finding> {
        check(&Tree::of(&[(path, text), (LIST, list)]))
    }

    #[test]
    fn a_mechanism_that_is_not_listed_is_caught() {
        let path = "crates/frames/src/tea.rs";
        let listed = "const ALL: &[Mechanism] = &[mechanism!(TeaPolicy, tea)];\n";
        assert_eq!(found(path, DECLARED, listed), []);
        let found = found(path, DECLARED, "const ALL: &[Mechanism] = &[];\n");
        assert_eq!((found.len(), found[0].line), (1, 1));
        assert!(found[0].what.contains("add mechanism!(TeaPolicy, FIELD)"), "{}", found[0]);
    }

    #[test]
    fn a_plain_enum_of_policies_is_caught() {
        let plain = "\npub enum TeaPolicy {\n    A,\n}\n";
        assert_eq!(found("crates/mm/src/tea.rs", plain, "")[0].line, 2);
        assert_eq!(found("crates/sim/src/tea.rs", plain, ""), [], "not a mechanism's");
        assert_eq!(found("crates/mm/tests/tea.rs", plain, ""), [], "a test's");
    }
}
