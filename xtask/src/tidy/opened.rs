//! Files that others may have made are opened by the crate `files` alone, which bounds what is read
//! and follows no planted link.

use super::{Finding, Source, Tree};
use proc_macro2::{TokenStream, TokenTree};

/// Crates that open paths from outside: of calls, of documents, or in folders of results.
const CRATES: [&str; 12] = [
    "calibrate",
    "cli",
    "document",
    "harness",
    "live",
    "measured",
    "report",
    "script",
    "sim",
    "stats",
    "studies",
    "threads",
];

/// Functions of `fs` (of the standard library and of rustix) that open, make or remove something.
const FUNCTIONS: [&str; 20] = [
    "copy",
    "create_dir",
    "create_dir_all",
    "hard_link",
    "link",
    "mkdir",
    "mkdirat",
    "open",
    "openat",
    "read",
    "read_dir",
    "read_link",
    "read_to_string",
    "remove_dir",
    "remove_dir_all",
    "remove_file",
    "rename",
    "symlink",
    "unlink",
    "write",
];

/// Functions of `File` that open something.
const OF_FILE: [&str; 4] = ["create", "create_new", "open", "options"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for source in tree.rust().filter(|source| concerns(source)) {
        if let Ok(tokens) = source.text.parse::<TokenStream>() {
            search(tokens, &source.path, &mut found);
        }
    }
    found
}

fn concerns(source: &Source) -> bool {
    // A module of tests in a file of its own.
    let is_test = source.path == "crates/cli/src/args/pages.rs";
    source.part() == "src"
        && !is_test
        && source.krate().is_some_and(|krate| CRATES.contains(&krate))
}

/// Searches tokens, so that the arguments of macros are included, but not modules of tests.
fn search(tokens: TokenStream, path: &str, found: &mut Vec<Finding>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while at < tokens.len() {
        if is_test(&tokens[at..]) {
            at += of_item(&tokens[at..]);
            continue;
        }
        if let TokenTree::Group(group) = &tokens[at] {
            search(group.stream(), path, found);
        }
        if let Some(what) = opens(&tokens[at..]) {
            let line = tokens[at].span().start().line;
            let what = format!("`{what}` opens a path: use the crate `files`");
            found.push(Finding::new(path, line, what));
        }
        at += 1;
    }
}

/// Returns whether tokens begin with `#[cfg(test)]`.
fn is_test(tokens: &[TokenTree]) -> bool {
    let [TokenTree::Punct(hash), TokenTree::Group(group), ..] = tokens else { return false };
    let text: String = group.stream().to_string().split_whitespace().collect();
    hash.as_char() == '#' && text.starts_with("cfg(") && text.contains("test")
}

/// Returns the number of tokens of an item, up to its body or semicolon.
fn of_item(tokens: &[TokenTree]) -> usize {
    let ends = |token: &TokenTree| match token {
        TokenTree::Group(group) => group.delimiter() == proc_macro2::Delimiter::Brace,
        TokenTree::Punct(punct) => punct.as_char() == ';',
        _ => false,
    };
    tokens.iter().position(ends).map_or(tokens.len(), |at| at + 1)
}

/// Returns the function that opens something, if tokens begin with it.
fn opens(tokens: &[TokenTree]) -> Option<String> {
    let TokenTree::Ident(first) = tokens.first()? else { return None };
    let first = first.to_string();
    if first == "OpenOptions" {
        return Some(first);
    }
    let known: &[&str] = match first.as_str() {
        "fs" => &FUNCTIONS,
        "File" => &OF_FILE,
        _ => return None,
    };
    let colon =
        |at: usize| matches!(tokens.get(at), Some(TokenTree::Punct(p)) if p.as_char() == ':');
    if !(colon(1) && colon(2)) {
        return None;
    }
    let named = |token: &TokenTree| known.iter().find(|name| token.to_string() == **name);
    let function = match tokens.get(3)? {
        // `use std::fs::{read, write}`.
        TokenTree::Group(group) => {
            let inside: Vec<TokenTree> = group.stream().into_iter().collect();
            *inside.iter().find_map(named)?
        }
        token => *named(token)?,
    };
    Some(format!("{first}::{function}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(path: &str, text: &str) -> usize {
        check(&Tree::of(&[(path, text)])).len()
    }

    #[test]
    fn every_way_to_open_a_path_is_found() {
        let ways = [
            "std::fs::read_to_string(path)",
            "fs::write(path, text)",
            "File::create(path)",
            "std::fs::File::open(path)",
            "OpenOptions::new().read(true).open(path)",
            "fs::create_dir_all(path)",
            "paths.map(fs::read)",
            "println!(\"{}\", fs::read_to_string(path).unwrap())",
            "rustix::fs::openat(at, path, flags, mode)",
        ];
        for way in ways {
            let text = format!("fn f() {{\n    let x = {way};\n}}\n");
            assert_eq!(count("crates/cli/src/x.rs", &text), 1, "{way}");
            assert_eq!(count("crates/files/src/x.rs", &text), 0, "{way}");
            assert_eq!(count("crates/cli/tests/x.rs", &text), 0, "{way}");
            let test = format!("#[cfg(test)]\nmod tests {{\n{text}}}\n");
            assert_eq!(count("crates/cli/src/x.rs", &test), 0, "{way}");
        }
        assert_eq!(count("studies/ipi/ipi.rs", "use std::fs::{read, Metadata};\n"), 1);
        assert_eq!(count("crates/cli/src/x.rs", "use std::fs;\nuse std::fs::File;\n"), 0);
    }
}
