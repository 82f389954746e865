//! Text of C: lines with tabs, of at most 80 columns.

/// The most columns of a line.
const COLUMNS: usize = 80;
/// The columns of a tab.
const TAB: usize = 8;

/// Lines with their indent.
#[derive(Debug, Default)]
pub(super) struct Lines {
    text: String,
    pub(super) indent: usize,
}

impl Lines {
    pub(super) fn at(indent: usize) -> Self {
        Self { text: String::new(), indent }
    }
    /// Adds a line; a long one is wrapped.
    pub(super) fn line(&mut self, line: &str) {
        let lines = wrapped(line, self.indent * TAB);
        for line in lines {
            self.text.extend(std::iter::repeat_n('\t', self.indent));
            self.text.push_str(&line);
            self.text.push('\n');
        }
    }
    /// Whether a line needs no wrapping.
    pub(super) const fn fits(&self, line: &str) -> bool {
        self.indent * TAB + line.len() <= COLUMNS
    }
    pub(super) fn blank(&mut self) {
        self.text.push('\n');
    }
    /// Adds a comment.
    pub(super) fn comment(&mut self, text: &str) {
        let text = plain(text);
        let width = COLUMNS - self.indent * TAB - 6;
        if text.len() <= width {
            return self.line(&format!("/* {text} */"));
        }
        self.line("/*");
        for line in filled(&text, width) {
            self.line(&format!(" * {line}"));
        }
        self.line(" */");
    }
    /// Adds whole lines as they are.
    pub(super) fn raw(&mut self, text: &str) {
        self.text.push_str(text);
    }
    pub(super) fn into_text(self) -> String {
        self.text
    }
    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }
}

/// Divides words into lines.
pub(super) fn filled(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.len() - 1;
        if lines[last].is_empty() {
            lines[last].push_str(word);
        } else if lines[last].len() + 1 + word.len() <= width {
            lines[last].push(' ');
            lines[last].push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// Returns text that is safe in a comment of C: ASCII, without marks of comments and trigraphs.
pub(super) fn plain(text: &str) -> String {
    let ascii = |letter: char| match letter {
        '\t' => ' ',
        letter if letter.is_ascii() && !letter.is_ascii_control() => letter,
        _ => '?',
    };
    let text: String = text.chars().map(ascii).collect();
    text.replace("*/", "* /").replace("/*", "/ *").replace("??", "? ?")
}

/// Divides a statement into lines behind commas and before operators. A line goes on below the
/// bracket that is open there.
fn wrapped(line: &str, indent: usize) -> Vec<String> {
    if indent + line.len() <= COLUMNS || line.starts_with('#') {
        return vec![line.to_owned()];
    }
    let Some((at, column)) = last_break(line, COLUMNS - indent) else {
        return vec![line.to_owned()];
    };
    let (first, rest) = (line[..at].trim_end().to_owned(), line[at..].trim_start());
    // Tabs up to the column, then blanks.
    let total = indent + column;
    let inner = total / TAB - indent / TAB;
    let begin = "\t".repeat(inner) + &" ".repeat(total % TAB);
    let mut lines = vec![first];
    let more = wrapped_from(rest, total);
    lines.extend(more.into_iter().map(|line| format!("{begin}{line}")));
    lines
}

/// Divides the rest of a statement, all of whose lines begin at one column.
fn wrapped_from(rest: &str, column: usize) -> Vec<String> {
    if column + rest.len() <= COLUMNS {
        return vec![rest.to_owned()];
    }
    let mut lines: Vec<String> = vec![String::new()];
    for part in parts(rest) {
        let last = lines.len() - 1;
        let is_first = lines[last].is_empty();
        if !is_first && column + lines[last].len() + part.trim_end().len() > COLUMNS {
            let end = lines[last].trim_end().len();
            lines[last].truncate(end);
            lines.push(part.trim_start().to_owned());
        } else {
            lines[last].push_str(part);
        }
    }
    lines
}

/// Whether a line may end behind this comma; not within `-1, 0)`.
fn may_break(text: &str) -> bool {
    text.starts_with(", ") && !text.starts_with(", 0)")
}

/// Returns the parts of a text up to each comma.
fn parts(text: &str) -> Vec<&str> {
    let (mut parts, mut begin, mut quoted) = (Vec::new(), 0, false);
    for (at, letter) in text.char_indices() {
        quoted ^= letter == '"';
        if letter == ',' && !quoted && may_break(&text[at..]) {
            parts.push(&text[begin..at + 2]);
            begin = at + 2;
        }
    }
    parts.push(&text[begin..]);
    parts
}

/// Returns the last place at which the first line may end, and the column of the next one.
fn last_break(line: &str, width: usize) -> Option<(usize, usize)> {
    let (mut open, mut found, mut quoted) = (Vec::new(), None, false);
    for (at, letter) in line.char_indices() {
        if at > width {
            break;
        }
        quoted ^= letter == '"';
        match letter {
            _ if quoted => {}
            '(' | '{' => open.push(at + 1),
            ')' | '}' => _ = open.pop(),
            ',' if may_break(&line[at..]) && at < width => {
                found = open.last().map(|column| (at + 2, *column)).or(found);
            }
            ' ' if [" + ", " - ", " || ", " && ", " * "]
                .iter()
                .any(|op| line[..=at].ends_with(op)) =>
            {
                let column = open.last().copied().unwrap_or(TAB);
                found = found.or(Some((at + 1, column)));
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{Lines, plain};

    #[test]
    fn a_long_call_goes_on_below_its_bracket() {
        let mut lines = Lines::at(2);
        lines.line(
            "char *mem = mmap(NULL, size, PROT_READ | PROT_WRITE, \
             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);",
        );
        let wanted = "\t\tchar *mem = mmap(NULL, size, PROT_READ | PROT_WRITE,\n\
                      \t\t\t\t MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);\n";
        assert_eq!(lines.into_text(), wanted);
    }

    #[test]
    fn a_comment_ends_where_it_should() {
        assert_eq!(plain("a /* b */ ??/ \u{202e}"), "a / * b * / ? ?/ ?");
    }
}
