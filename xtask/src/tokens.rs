//! `cargo xtask tokens`: checks that Rust files differ from a revision in comments only.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::path::Path;
use std::process::Command;

/// Compares every Rust file of the working tree with its version at `revision`, excluding comments
/// and doc comments.
///
/// # Errors
/// The files whose tokens differ, those that exist on one side only, or the message of git.
pub fn check(root: &Path, revision: &str) -> Result<String, String> {
    let changed = git(root, &["diff", "--name-only", "--no-renames", revision, "--", "*.rs"])?;
    let mut different = Vec::new();
    let mut equal = 0;
    for path in changed.lines() {
        let now = std::fs::read_to_string(root.join(path));
        let before = git(root, &["show", &format!("{revision}:{path}")]);
        match (before, now) {
            (Ok(before), Ok(now)) if code(&before)? == code(&now)? => equal += 1,
            (Ok(_), Ok(_)) => different.push(format!("{path}: tokens differ")),
            (Err(_), _) => different.push(format!("{path}: new")),
            (_, Err(_)) => different.push(format!("{path}: deleted")),
        }
    }
    if different.is_empty() {
        Ok(format!("{equal} Rust files changed since {revision}, in comments only"))
    } else {
        Err(different.join("\n"))
    }
}

fn git(root: &Path, args: &[&str]) -> Result<String, String> {
    let done = Command::new("git").current_dir(root).args(args).output();
    let done = done.map_err(|why| format!("git: {why}"))?;
    if done.status.success() {
        Ok(String::from_utf8_lossy(&done.stdout).into_owned())
    } else {
        Err(String::from_utf8_lossy(&done.stderr).trim().to_owned())
    }
}

/// Returns the tokens of a file without comments, separated by spaces.
fn code(text: &str) -> Result<String, String> {
    let tokens: TokenStream = text.parse().map_err(|why| format!("cannot be parsed: {why}"))?;
    let mut out = String::new();
    write(tokens, &mut out);
    Ok(out)
}

fn write(tokens: TokenStream, out: &mut String) {
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match &token {
            TokenTree::Punct(punct) if punct.as_char() == '#' => {
                let inner =
                    tokens.next_if(|t| matches!(t, TokenTree::Punct(p) if p.as_char() == '!'));
                if tokens.next_if(is_doc).is_none() {
                    out.push('#');
                    inner.into_iter().for_each(|_| out.push('!'));
                }
            }
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                out.push_str(open);
                write(group.stream(), out);
                out.push_str(close);
            }
            other => {
                out.push_str(&other.to_string());
                out.push(' ');
            }
        }
    }
}

/// Returns whether this is the `[doc = ".."]` of a doc comment.
fn is_doc(token: &TokenTree) -> bool {
    let TokenTree::Group(group) = token else { return false };
    let mut inside = group.stream().into_iter();
    let doc = matches!(inside.next(), Some(TokenTree::Ident(name)) if name == "doc");
    let text = matches!(inside.nth(1), Some(TokenTree::Literal(_)));
    doc && text && inside.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(a: &str, b: &str) -> bool {
        code(a).unwrap() == code(b).unwrap()
    }

    #[test]
    fn comments_do_not_count_and_all_else_does() {
        let before = "//! A.\n/// B.\n#[inline]\nfn f() { g(\"x\"); } // c\n";
        assert!(same(before, "//! D.\n#[inline]\nfn f() {\n    // E.\n    g(\"x\");\n}\n"));
        assert!(!same(before, "//! A.\n/// B.\nfn f() { g(\"x\"); } // c\n"));
        assert!(!same(before, "//! A.\n/// B.\n#[inline]\nfn f() { g(\"y\"); } // c\n"));
        assert!(!same("#[doc(hidden)] fn f() {}", "fn f() {}"));
    }
}
