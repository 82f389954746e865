//! A line of a call tree.

use mmscale_document::plain_function;

use crate::number::real;

/// A line of `perf report`.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Row {
    /// Bars only.
    Bars,
    /// A row of the table: a function with its share of the samples.
    Entry(Entry),
    /// The beginning of a branch.
    Branch(Branch),
    /// The next function of a chain, with the column of its name.
    Chain(usize, String),
}

/// A row of the table.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Entry {
    /// The function.
    pub(super) name: String,
    /// The first share, in percent: with the function's callees, if there is a second one.
    pub(super) percent: f64,
    /// The share of the function itself, if the row has both.
    pub(super) own: Option<f64>,
    /// Everything but the shares: it is the same in two profiles.
    pub(super) key: String,
}

impl Entry {
    /// Returns whether most samples of the row are in its function, not in callees.
    pub(super) fn is_leaf(&self) -> bool {
        self.own.is_none_or(|own| own >= self.percent / 2.0)
    }
}

/// The beginning of a branch.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Branch {
    /// The column of its mark: dashes, the sign of the terminal, or the place of the latter.
    pub(super) mark: usize,
    /// The column of its name, where the names of its chain begin.
    pub(super) column: usize,
    pub(super) percent: Option<f64>,
    pub(super) name: String,
    pub(super) form: Form,
}

/// The form of a branch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// `--12.34%--f`.
    Dashes,
    /// `--12.34%-- f`, of versions whose shares are of the caller.
    Old,
    /// `--- f`.
    Root,
    /// `- 12.34% f`, `12.34% f`, `- f`.
    Screen,
    /// A share alone (`-g flat`).
    Share,
}

/// The names of rows for samples that belong to the function above.
pub(super) const ITSELF: &str = "[itself]";
const REST: [&str; 3] = ["[hit in function]", "[...]", "[other]"];

/// The largest share of a caller that is believed, in percent.
const MOST: f64 = 1000.0;

/// Reads a line. `inside` says that a tree is open, so that a name alone continues it.
pub(super) fn row(text: &str, inside: bool) -> Option<Row> {
    let text = without_bar(without_remark(text));
    if text.trim_start().is_empty() {
        return None;
    }
    if text.chars().all(|c| c == '|' || c.is_whitespace()) {
        return Some(Row::Bars);
    }
    dashes(text)
        .map(Row::Branch)
        .or_else(|| shares(text, inside))
        .or_else(|| inside.then(|| bare(text)).flatten())
}

/// Removes what an author wrote behind a row: `12.3%  f   <-- here`.
fn without_remark(text: &str) -> &str {
    const MARKS: [&str; 7] = [" ←", " <-", " <=", " <<", " ⟵", " // ", "  # "];
    let is_row = text
        .trim_start_matches([' ', '\t', '|', '-', '+'])
        .starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    let cut = MARKS.iter().filter_map(|mark| text.find(mark)).min().filter(|_| is_row);
    cut.map_or(text, |at| text[..at].trim_end())
}

/// Removes the bar with which the window of `perf top` and `perf report` ends a line: it shows the
/// place in a long list.
fn without_bar(text: &str) -> &str {
    const SIGNS: [char; 9] = ['▒', '░', '▓', '█', '◆', '■', '▮', '↑', '↓'];
    let end = text.trim_end();
    let plain = end.trim_end_matches(SIGNS).trim_end();
    // A terminal without these signs has others.
    ["  #", "\t#"].iter().find_map(|bar| plain.strip_suffix(bar)).unwrap_or(plain).trim_end()
}

/// `--12.34%--f`, `--- f`.
fn dashes(text: &str) -> Option<Branch> {
    let start = text.find(|c: char| c != '|' && !c.is_whitespace())?;
    // The first branch of a cut tree may have lost its dashes: `34.47%--f`.
    let cut = text[start..].split_once("%--").is_some_and(|(number, _)| real(number).is_some());
    let inner = text[start..].strip_prefix("--").or_else(|| cut.then(|| &text[start..]))?;
    if let Some(name) = inner.strip_prefix('-') {
        let gap = name.len() - name.trim_start().len();
        let name = name.trim_start();
        let ok = !name.is_empty() && !name.starts_with(['-', '+', '=']) && gap <= 1;
        // The heading of an author has words: `--- 10G: after`.
        let is_symbol = name.starts_with('[') || name.contains("::") || name.contains(['(', '<']);
        let ok = ok && (is_symbol || name.split_whitespace().count() == 1 && !name.ends_with(':'));
        return ok.then(|| Branch {
            mark: start,
            column: start + 3 + gap,
            percent: None,
            name: function(name),
            form: Form::Root,
        });
    }
    let end = inner.find("--")?;
    let number = &inner[..end];
    let percent = real(number.strip_suffix('%')?)?;
    let rest = inner[end..].trim_start_matches('-');
    let (gap, name) = (rest.len() - rest.trim_start().len(), rest.trim_start());
    let form = if gap > 0 { Form::Old } else { Form::Dashes };
    // Shares of the caller are of samples that `perf top` lets decay, so that they may be more.
    let most = if form == Form::Old { MOST } else { 100.0 };
    (!name.is_empty() && percent <= most).then(|| Branch {
        mark: start,
        column: text.len() - name.len(),
        percent: Some(percent),
        name: function(name),
        form,
    })
}

/// Rows of the table, branches of the terminal, and shares alone.
fn shares(text: &str, inside: bool) -> Option<Row> {
    let inner = text.trim_start_matches([' ', '\t']);
    let sign_at = text.len() - inner.len();
    let sign = inner.starts_with(['-', '+']) && inner[1..].starts_with([' ', '\t']);
    let rest = if sign { inner[1..].trim_start() } else { inner };
    let at = text.len() - rest.len();
    let mark = if sign { sign_at } else { at.saturating_sub(2) };
    let share = |word: &str| real(word.strip_suffix('%')?).filter(|percent| *percent <= 100.0);
    if let Some(entry) = old(rest) {
        return Some(Row::Entry(entry));
    }
    let first = rest.split_ascii_whitespace().next()?;
    let branch = |mark, column, percent, name, form| {
        Some(Row::Branch(Branch { mark, column, percent, name, form }))
    };
    let Some(percent) = share(first) else {
        // The last function of a chain, which has callees.
        let name = single(rest).filter(|_| sign && sign_at > 0 && inside)?;
        return branch(mark, at, None, name, Form::Screen);
    };
    let mut words = rest[first.len()..].split_ascii_whitespace().peekable();
    let own = words.peek().and_then(|word| share(word));
    if own.is_some() {
        words.next();
    }
    let mut words: Vec<&str> = words.collect();
    while words.len() > 1 && words.pop_if(|word| ["-", "N/A"].contains(word)).is_some() {}
    let name = match words.as_slice() {
        [] if inside => return branch(at, at + 4, Some(percent), String::new(), Form::Share),
        [name] => single(name).filter(|name| name.contains('_') || inside && own.is_none())?,
        [.., "[k]" | "[.]" | "[H]" | "[g]" | "[u]", name] => function(name),
        [binary, name] if binary.starts_with('[') => function(name),
        _ => return None,
    };
    if words.len() == 1 && own.is_none() {
        let column = text.len() - words[0].len();
        return branch(mark, column, Some(percent), name, Form::Screen);
    }
    let key = words.join(" ");
    Some(Row::Entry(Entry { name, percent, own, key }))
}

/// A row of `perf top` before 3.6: samples, share, function and binary.
fn old(text: &str) -> Option<Entry> {
    let mut words = text.split_ascii_whitespace();
    let samples = words.next().filter(|word| word.contains('.') && real(word).is_some());
    let share = samples.and(words.next())?.strip_suffix('%')?;
    let percent = real(share).filter(|percent| *percent <= 100.0)?;
    let name = single(words.next()?)?;
    let binary = words.next().filter(|binary| binary.starts_with(['/', '[']))?;
    let key = format!("{name} {binary}");
    words.next().is_none().then_some(Entry { name, percent, own: None, key })
}

/// A function alone, with bars or blanks before it.
fn bare(text: &str) -> Option<Row> {
    let inner = text.trim_start_matches(|c: char| c == '|' || c.is_whitespace());
    let column = text.len() - inner.len();
    if column < 2 {
        return None;
    }
    let name = single(inner).or_else(|| {
        // Names of C++ and Rust have blanks; `(inlined)` follows others.
        let name = inner.strip_suffix(" (inlined)").unwrap_or(inner);
        (column >= 8 && (name.contains("::") || inner != name)).then(|| function(name))
    })?;
    Some(Row::Chain(column, name))
}

/// Returns the function that a text consists of: letters, digits and what compilers add.
fn single(text: &str) -> Option<String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_.:<>@$~[]+*&,-()".contains(c);
    let name = text.trim_end();
    let ok = !name.is_empty()
        && name.chars().all(allowed)
        && name.starts_with(|c: char| c.is_ascii_alphanumeric() || "_[".contains(c))
        && (name.contains('_') || name.len() >= 3)
        && !name.ends_with([':', ',', '.'])
        && !name.contains("..");
    ok.then(|| function(name))
}

fn function(name: &str) -> String {
    if REST.iter().any(|rest| name.starts_with(rest)) {
        return ITSELF.to_owned();
    }
    match plain_function(name) {
        "" => name.to_owned(),
        plain => plain.to_owned(),
    }
}
