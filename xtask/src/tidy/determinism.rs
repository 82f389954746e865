//! Same seed, same result: no wall clock, host randomness, hash order or addresses in the crates
//! that a simulated run uses.

use super::{Finding, Source, Tree};
use proc_macro2::{Span, TokenStream, TokenTree};
use syn::visit::{self, Visit};

/// The crates whose results are bit-identical between runs.
const CRATES: [&str; 6] = ["arch", "frames", "mm", "sim", "replay", "document"];

/// Forbidden paths, with the alternative. The words are separated by `::`.
const PATHS: [(&[&str], &str); 7] = [
    (&["Instant", "now"], "the wall clock: use the machine's clock"),
    (&["SystemTime"], "the wall clock: use the machine's clock"),
    (&["thread_rng"], "host randomness: derive it from the run's seed"),
    (&["rand", "rng"], "host randomness: derive it from the run's seed"),
    (&["StdRng"], "an unspecified algorithm: use one of rand_xoshiro"),
    (&["SmallRng"], "an unspecified algorithm: use one of rand_xoshiro"),
    (&["RandomState"], "hash order of the host: use a fixed hasher, or a BTreeMap"),
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for source in tree.rust().filter(|source| concerns(source)) {
        if let Ok(tokens) = source.text.parse::<TokenStream>() {
            search(tokens, &source.path, &mut found);
        }
        if let Some(syntax) = source.syntax() {
            let mut finder = Finder { path: &source.path, found: &mut found };
            finder.visit_file(syntax);
        }
    }
    found
}

/// Benchmarks and examples measure the host, so they may use its clock.
fn concerns(source: &Source) -> bool {
    let part = source.part();
    source.krate().is_some_and(|krate| CRATES.contains(&krate))
        && (part == "src" || part == "tests")
}

/// Searches tokens, so that the arguments of macros are included.
fn search(tokens: TokenStream, path: &str, found: &mut Vec<Finding>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (at, token) in tokens.iter().enumerate() {
        let line = token.span().start().line;
        match token {
            TokenTree::Group(group) => search(group.stream(), path, found),
            TokenTree::Ident(_) => {
                for (words, why) in PATHS.iter().filter(|(words, _)| begins(&tokens[at..], words)) {
                    let what = format!("`{}` is {why}", words.join("::"));
                    found.push(Finding::new(path, line, what));
                }
            }
            TokenTree::Literal(literal) if prints_pointer(&literal.to_string()) => {
                let what = "prints an address: use the number of the object";
                found.push(Finding::new(path, line, what));
            }
            TokenTree::Literal(_) | TokenTree::Punct(_) => {}
        }
    }
}

/// Returns whether `tokens` begin with `words`, joined by `::`.
fn begins(tokens: &[TokenTree], words: &[&str]) -> bool {
    words.iter().enumerate().all(|(at, word)| {
        let joined = at == 0 || [3 * at - 2, 3 * at - 1].iter().all(|&colon| {
            matches!(tokens.get(colon), Some(TokenTree::Punct(p)) if p.as_char() == ':')
        });
        let named = matches!(tokens.get(3 * at), Some(TokenTree::Ident(ident)) if ident == word);
        joined && named
    })
}

/// Returns whether a format string prints an address: `{:p}`, `{name:p}`, `{:#p}`.
fn prints_pointer(literal: &str) -> bool {
    literal.starts_with('"')
        && literal.split('{').skip(1).any(|hole| {
            let hole = hole.split('}').next().unwrap_or("");
            hole.split_once(':').is_some_and(|(_, format)| format.ends_with('p'))
        })
}

struct Finder<'a> {
    path: &'a str,
    found: &'a mut Vec<Finding>,
}

impl Finder<'_> {
    fn add(&mut self, span: Span, what: String) {
        self.found.push(Finding::new(self.path, span.start().line, what));
    }
    /// Finds `HashMap<K, V>`, `HashSet<T>` and their constructors that use the host's hasher.
    fn look_at_map(&mut self, path: &syn::Path) {
        for (at, segment) in path.segments.iter().enumerate() {
            let arguments = match segment.ident.to_string().as_str() {
                "HashMap" => 3,
                "HashSet" => 2,
                _ => continue,
            };
            let given = match &segment.arguments {
                syn::PathArguments::AngleBracketed(list) => list.args.len(),
                _ => 0,
            };
            let next = path.segments.get(at + 1).map(|next| next.ident.to_string());
            let seeded = match next.as_deref() {
                Some("new" | "with_capacity" | "from") => true,
                Some(_) => false,
                None => given > 0 && given < arguments,
            };
            if seeded {
                let name = &segment.ident;
                let what = format!("`{name}` with the host's hasher: use a fixed one, or a BTree");
                self.add(segment.ident.span(), what);
            }
        }
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.look_at_map(path);
        visit::visit_path(self, path);
    }
    fn visit_expr_cast(&mut self, cast: &'ast syn::ExprCast) {
        let is_pointer = |inner: &syn::Expr| match inner {
            syn::Expr::Cast(inner) => matches!(*inner.ty, syn::Type::Ptr(_)),
            syn::Expr::MethodCall(call) => {
                ["as_ptr", "as_mut_ptr"].iter().any(|name| call.method == name)
            }
            syn::Expr::RawAddr(_) => true,
            _ => false,
        };
        let inner = match &*cast.expr {
            syn::Expr::Paren(paren) => &*paren.expr,
            inner => inner,
        };
        let number = matches!(&*cast.ty, syn::Type::Path(ty) if ty.path.is_ident("usize")
            || ty.path.is_ident("u64"));
        if number && is_pointer(inner) {
            let what = "an address as a number: use the number of the object".to_owned();
            self.add(cast.as_token.span, what);
        }
        visit::visit_expr_cast(self, cast);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, body: &str) -> usize {
        check(&Tree::of(&[(path, &format!("fn f() {{\n{body}\n}}\n"))])).len()
    }
    fn in_sim(body: &str) -> usize {
        lines("crates/sim/src/a.rs", body)
    }

    #[test]
    fn clocks_and_randomness_are_caught() {
        for body in [
            "std::time::Instant::now();",
            "let t = SystemTime::UNIX_EPOCH;",
            "rand::thread_rng();",
            "let r = rand::rng();",
            "StdRng::seed_from_u64(1);",
            "SmallRng::seed_from_u64(1);",
            "assert!(t > Instant::now());",
        ] {
            assert_eq!(in_sim(body), 1, "{body}");
            assert_eq!(lines("crates/sim/benches/a.rs", body), 0, "{body}");
            assert_eq!(lines("crates/threads/src/a.rs", body), 0, "{body}");
        }
        assert_eq!(in_sim("let now = machine.now(); // Instant::now"), 0);
    }

    #[test]
    fn hash_order_is_caught() {
        assert_eq!(in_sim("let m: HashMap<u32, u32> = HashMap::default();"), 1);
        assert_eq!(in_sim("let m = std::collections::HashMap::<u32, u32>::new();"), 1);
        assert_eq!(in_sim("let m = HashSet::with_capacity(9);"), 1);
        assert_eq!(in_sim("let m: HashMap<u32, u32, FxBuildHasher> = HashMap::default();"), 0);
        assert_eq!(in_sim("let m: HashSet<u32, FxBuildHasher> = HashSet::default();"), 0);
        assert_eq!(in_sim("let m = HashMap::with_hasher(RandomState::new());"), 1);
    }

    #[test]
    fn addresses_are_caught() {
        assert_eq!(in_sim("println!(\"at {:p}\", x);"), 1);
        assert_eq!(in_sim("println!(\"at {x:p}\");"), 1);
        assert_eq!(in_sim("println!(\"{x} stop\");"), 0);
        assert_eq!(in_sim("let n = &x as *const _ as usize;"), 1);
        assert_eq!(in_sim("let n = (&x as *const u8) as u64;"), 1);
        assert_eq!(in_sim("let n = x.as_ptr() as usize;"), 1);
        assert_eq!(in_sim("let n = x.len() as u64;"), 0);
    }
}
