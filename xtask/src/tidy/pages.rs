//! A page of documentation has one title, in its first line.

use super::{Finding, Source, Tree};

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.sources().filter(|source| source.is_page()).flat_map(page).collect()
}

fn page(source: &Source) -> Vec<Finding> {
    let titles: Vec<usize> =
        headings(&source.text).filter(|h| h.level == 1).map(|h| h.line).collect();
    let mut found = Vec::new();
    match titles.as_slice() {
        [] => found.push(Finding::new(&source.path, 1, "no title: begin with `# ...`")),
        [_] => {}
        [_, more @ ..] => found.extend(more.iter().map(|&line| {
            Finding::new(
                &source.path,
                line,
                "a second title: a page has one `#`, its sections have `##`",
            )
        })),
    }
    found
}

/// A heading of a page.
pub(super) struct Heading<'a> {
    /// The level: 1 for `#`.
    pub(super) level: usize,
    /// The text after the `#`s.
    pub(super) text: &'a str,
    /// The line number, from 1.
    pub(super) line: usize,
}

/// Returns the headings of a page, excluding code blocks.
pub(super) fn headings(text: &str) -> impl Iterator<Item = Heading<'_>> {
    prose(text).filter_map(|(line, content)| {
        let level = content.bytes().take_while(|&b| b == b'#').count();
        let text = content[level..].strip_prefix(' ')?;
        (1..=6).contains(&level).then(|| Heading { level, text: text.trim(), line })
    })
}

/// Returns the lines outside fenced code blocks, with their numbers from 1.
pub(super) fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        let fence = line.trim_start().starts_with("```") || line.trim_start().starts_with("~~~");
        fenced ^= fence;
        (!fence && !fenced).then_some((at + 1, line))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        check(&Tree::of(&[("docs/a.md", text)])).iter().map(|f| f.line).collect()
    }

    #[test]
    fn a_page_has_one_title() {
        assert_eq!(lines("# A\n\n## B\n\n```\n# a comment\n```\n"), [0; 0]);
        assert_eq!(lines("## B\n"), [1]);
        assert_eq!(lines("# A\n\n# B\n"), [3]);
    }
}
