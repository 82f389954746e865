//! The text of a file that is written for people: comments, messages, pages.

use super::super::pages;
use super::Source;

/// Where a text is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A doc comment.
    Doc,
    /// Another comment.
    Comment,
    /// A string of a program, with a space in it.
    Message,
    /// A paragraph of a page, or a line of a settings file.
    Page,
}

/// Lines that follow one another, as one text with single spaces. Code in backticks is left out.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) kind: Kind,
    pub(super) text: String,
    /// Where each line begins in `text`, and its number in the file, from 1.
    lines: Vec<(usize, usize)>,
}

impl Block {
    fn new(kind: Kind) -> Self {
        Self { kind, text: String::new(), lines: Vec::new() }
    }

    fn push(&mut self, number: usize, line: &str) {
        if !self.text.is_empty() {
            self.text.push(' ');
        }
        self.lines.push((self.text.len(), number));
        let words: Vec<&str> = line.split_whitespace().collect();
        self.text.push_str(&words.join(" "));
    }

    /// The line of the file that the byte at `offset` comes from.
    pub(super) fn line_at(&self, offset: usize) -> usize {
        let behind = self.lines.partition_point(|&(begin, _)| begin <= offset);
        self.lines[behind.saturating_sub(1)].1
    }

    fn without_code(mut self) -> Self {
        let mut inside = false;
        let blank = |c: char| {
            inside ^= c == '`';
            if inside && c.is_ascii_graphic() && c != '`' { '_' } else { c }
        };
        self.text = self.text.chars().map(blank).collect();
        self
    }
}

/// All blocks of a file, in order of their lines.
pub(super) fn blocks(source: &Source) -> Vec<Block> {
    let blocks = if source.is_rust() {
        rust(&source.text)
    } else if source.is_page() {
        page(&source.text)
    } else if source.path.ends_with(".toml") && source.path != "Cargo.lock" {
        source.text.lines().enumerate().map(|(at, line)| single(at + 1, line)).collect()
    } else {
        Vec::new()
    };
    blocks.into_iter().filter(|b| !b.text.is_empty()).map(Block::without_code).collect()
}

fn single(number: usize, line: &str) -> Block {
    let mut block = Block::new(Kind::Page);
    block.push(number, line);
    block
}

/// Paragraphs outside of code, without headings.
fn page(text: &str) -> Vec<Block> {
    let mut all = vec![Block::new(Kind::Page)];
    let mut last = 0;
    for (number, line) in pages::prose(text) {
        let begins = line.trim().is_empty()
            || line.starts_with(['#', '|', '>'])
            || line.trim_start().starts_with(['-', '*'])
            || number != last + 1;
        if begins {
            all.push(Block::new(Kind::Page));
        }
        last = number;
        if !line.starts_with('#') && !line.trim().is_empty() {
            let block = all.last_mut().expect("there is one from the beginning");
            block.push(number, line.trim_start_matches(['-', '*', '>', ' ', '|']));
        }
    }
    all
}

/// Comments, neighbouring lines of one kind joined, and strings.
fn rust(text: &str) -> Vec<Block> {
    let mut all: Vec<Block> = Vec::new();
    let mut rest = text;
    let mut number = 1;
    let mut last_comment = 0;
    let mut fenced = false;
    while let Some(c) = rest.chars().next() {
        let length = token(rest);
        let token = &rest[..length];
        if let Some(comment) = token.strip_prefix("//") {
            let (kind, line) = kind_of(comment);
            let line = line.trim();
            let joined = last_comment + 1 == number && all.last().is_some_and(|b| b.kind == kind);
            fenced = joined && fenced != line.starts_with("```");
            if !joined || line.is_empty() {
                all.push(Block::new(kind));
            }
            if !fenced && !line.starts_with("```") {
                let line = line.trim_start_matches(['-', '*', '#', '|', ' ']);
                all.last_mut().expect("just pushed").push(number, line);
            }
            last_comment = number;
        } else if c == '"' || (c == 'r' && length > 1 && token.ends_with(['"', '#'])) {
            let mut block = Block::new(Kind::Message);
            let inner = token.trim_start_matches('r').trim_matches('#').trim_matches('"');
            for (at, line) in inner.lines().enumerate() {
                block.push(number + at, line.trim_end_matches('\\').trim_end_matches("\\n"));
            }
            if block.text.contains(' ') {
                all.push(block);
            }
        }
        number += token.matches('\n').count();
        rest = &rest[length..];
    }
    all
}

fn kind_of(comment: &str) -> (Kind, &str) {
    match comment.strip_prefix(['/', '!']) {
        Some(line) => (Kind::Doc, line),
        None => (Kind::Comment, comment),
    }
}

/// The length in bytes of the comment, string, character or name that `rest` begins with; of one
/// character otherwise.
fn token(rest: &str) -> usize {
    let up_to = |end: Option<usize>| end.unwrap_or(rest.len());
    if rest.starts_with("//") {
        return up_to(rest.find('\n'));
    }
    if rest.starts_with("/*") {
        return up_to(rest.find("*/").map(|at| at + 2));
    }
    if let Some(hashes) = raw_string(rest) {
        let close = format!("\"{}", "#".repeat(hashes));
        let begin = hashes + 2;
        return up_to(rest[begin..].find(&close).map(|at| begin + at + close.len()));
    }
    if let Some(string) = rest.strip_prefix('"') {
        return up_to(end_of_string(string).map(|at| at + 1));
    }
    if rest.starts_with('\'') {
        return character(rest);
    }
    let name = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    name.max(rest.chars().next().map_or(1, char::len_utf8))
}

/// The number of hashes of a raw string that begins here.
fn raw_string(rest: &str) -> Option<usize> {
    let behind = rest.strip_prefix('r')?;
    let hashes = behind.bytes().take_while(|&b| b == b'#').count();
    behind[hashes..].starts_with('"').then_some(hashes)
}

/// The offset behind the quote that closes a string.
fn end_of_string(string: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in string.char_indices() {
        if !escaped && c == '"' {
            return Some(at + 1);
        }
        escaped = !escaped && c == '\\';
    }
    None
}

/// The length of a character literal; 1 for the quote of a lifetime.
fn character(rest: &str) -> usize {
    let mut inner = rest.char_indices().skip(1);
    let (Some((_, first)), Some((second_at, second))) = (inner.next(), inner.next()) else {
        return 1;
    };
    if first == '\\' {
        let behind = second_at + second.len_utf8();
        return rest[behind..].find('\'').map_or(1, |at| behind + at + 1);
    }
    if second == '\'' { second_at + 1 } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<(Kind, String)> {
        rust(text).into_iter().map(|b| (b.kind, b.text)).collect()
    }

    #[test]
    fn comments_and_strings_are_found_where_they_are() {
        let text = concat!(
            "//! A\n//! b.\nfn f<'a>() -> char {\n",
            "    g(\"x // y\", '\"', r#\"a \"q\" b\"#); '\\'' } // c\n",
        );
        let expected = [
            (Kind::Doc, "A b.".to_owned()),
            (Kind::Message, "x // y".to_owned()),
            (Kind::Message, "a \"q\" b".to_owned()),
            (Kind::Comment, "c".to_owned()),
        ];
        assert_eq!(texts(text), expected);
    }

    #[test]
    fn code_in_comments_is_left_out() {
        let text = "/// A:\n/// ```\n/// nobody();\n/// ```\n/// B.\nfn f() {}\n";
        assert_eq!(texts(text), [(Kind::Doc, "A: B.".to_owned())]);
    }

    #[test]
    fn a_block_knows_its_lines() {
        let block = &rust("\n// one\n// two\n")[0];
        assert_eq!((block.line_at(0), block.line_at(2), block.line_at(4)), (2, 2, 3));
    }
}
