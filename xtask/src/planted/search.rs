//! Code is found by its tokens: white space and comments do not count.

use proc_macro2::{Delimiter, Group, Span, TokenStream, TokenTree};
use std::ops::Range;

/// A source as tokens.
pub(crate) struct Tokens(Vec<Token>);

/// A token and its bytes in the source.
struct Token {
    text: String,
    bytes: Range<usize>,
}

impl Tokens {
    /// Splits a source into tokens.
    ///
    /// # Errors
    /// The place if it has no tokens of Rust or its brackets do not match.
    pub(crate) fn of(source: &str) -> Result<Self, String> {
        let stream: TokenStream = source.parse().map_err(|why| format!("no Rust code: {why}"))?;
        let mut tokens = Self(Vec::new());
        tokens.add(stream);
        Ok(tokens)
    }
    fn add(&mut self, stream: TokenStream) {
        for tree in stream {
            match tree {
                TokenTree::Group(group) => self.add_group(&group),
                one => self.push(one.to_string(), one.span()),
            }
        }
    }
    fn add_group(&mut self, group: &Group) {
        let (open, close) = match group.delimiter() {
            Delimiter::Parenthesis => ("(", ")"),
            Delimiter::Brace => ("{", "}"),
            Delimiter::Bracket => ("[", "]"),
            Delimiter::None => return self.add(group.stream()),
        };
        self.push(open.to_owned(), group.span_open());
        self.add(group.stream());
        self.push(close.to_owned(), group.span_close());
    }
    fn push(&mut self, text: String, span: Span) {
        self.0.push(Token { text, bytes: span.byte_range() });
    }
    /// Returns the bytes of each place with the code `wanted`. `function`: only in functions of
    /// this name.
    pub(crate) fn places(&self, wanted: &Self, function: Option<&str>) -> Vec<Range<usize>> {
        let parts = match function {
            Some(name) => self.functions(name),
            None => vec![&self.0[..]],
        };
        let mut places = Vec::new();
        for part in parts {
            let windows = part.windows(wanted.0.len().max(1));
            let found = windows.filter(|window| {
                window.iter().zip(&wanted.0).all(|(token, other)| token.text == other.text)
            });
            places.extend(
                found.filter_map(|window| {
                    Some(window.first()?.bytes.start..window.last()?.bytes.end)
                }),
            );
        }
        places
    }
    /// Returns the tokens of each function of this name that has a body.
    fn functions(&self, name: &str) -> Vec<&[Token]> {
        let starts =
            (1..self.0.len()).filter(|&at| self.0[at].text == name && self.0[at - 1].text == "fn");
        starts.filter_map(|start| self.0.get(start..self.end(start)?)).collect()
    }
    /// Returns the end of the body of the function whose name is at `start`. `None`: it has no
    /// body.
    fn end(&self, start: usize) -> Option<usize> {
        let (mut depth, mut in_body) = (0_usize, false);
        for (at, token) in self.0.iter().enumerate().skip(start) {
            match token.text.as_str() {
                ";" if depth == 0 => return None,
                "(" | "[" | "{" => {
                    in_body |= depth == 0 && token.text == "{";
                    depth += 1;
                }
                ")" | "]" | "}" => {
                    depth = depth.checked_sub(1)?;
                    if in_body && depth == 0 {
                        return Some(at + 1);
                    }
                }
                _ => {}
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "
        /// Ends it.
        fn end(a: [u8; 2]) -> u8 {
            // a ≥ 1.
            f( a,
                // b
                1);
            g()
        }
        fn begin() { g() }
        trait T { fn begin(); }
    ";

    fn places(code: &str, function: Option<&str>) -> Vec<&'static str> {
        let places = Tokens::of(SOURCE).unwrap().places(&Tokens::of(code).unwrap(), function);
        places.into_iter().map(|bytes| &SOURCE[bytes]).collect()
    }

    #[test]
    fn white_space_and_comments_do_not_count() {
        assert_eq!(places("f(a, 1);", None), ["f( a,\n                // b\n                1);"]);
        assert!(places("f(a, 2);", None).is_empty() && places("(b)", None).is_empty());
    }

    #[test]
    fn a_function_bounds_the_search() {
        assert_eq!(places("g()", None).len(), 2);
        assert_eq!(places("g()", Some("end")).len(), 1);
        assert_eq!(places("g()", Some("begin")).len(), 1);
        assert!(places("f(a, 1)", Some("begin")).is_empty() && places("g()", Some("f")).is_empty());
    }

    #[test]
    fn brackets_that_do_not_match_are_refused() {
        assert!(Tokens::of("if a {").is_err());
    }
}
