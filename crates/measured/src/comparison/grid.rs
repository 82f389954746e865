//! Rows of tables: cells between bars, tabs, commas or spaces, and the names above them.

use super::figure::{self, Figure};
use crate::text::Line;

/// A part of a line, with its columns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Cell {
    pub(super) text: String,
    pub(super) from: usize,
    pub(super) to: usize,
}

/// The divider of the cells of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Divided {
    Bars,
    Commas,
    Spaces,
}

/// A row of figures.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Row {
    pub(super) line: usize,
    pub(super) label: Cell,
    pub(super) figures: Vec<Option<Figure>>,
    /// The number of cells of a row whose cells have borders.
    pub(super) cells: usize,
    pub(super) divided: Divided,
}

/// Rows below each other with equally many figures, and the lines above them.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Block {
    pub(super) rows: Vec<Row>,
    /// Indices of the nearest lines above with words, the nearest first.
    pub(super) above: Vec<usize>,
    /// The index behind the last row.
    pub(super) end: usize,
    /// The line below that may be one more row, in a form that is not read.
    pub(super) unread: Option<usize>,
}

/// The least number of figures of a row without a label.
const FIGURES: usize = 2;
/// Number of lines above a block that are kept.
const ABOVE: usize = 4;

/// Returns whether a line is a border of a table.
pub(super) fn is_border(line: &Line) -> bool {
    let text = line.text.trim();
    text.len() >= 3 && text.chars().all(|c| "-=+|:_ \t*~─━═┼╪│┃├┤┌┐└┘┬┴╔╗╚╝║".contains(c))
}

fn bars(text: &str) -> bool {
    text.matches(['|', '│', '┃', '║']).count() >= 2
}

/// Returns how a line is divided.
pub(super) fn divided(text: &str) -> Divided {
    let words = text.split_whitespace().count();
    match () {
        () if bars(text) => Divided::Bars,
        () if words == 1 && text.matches([',', ';']).count() >= 2 => Divided::Commas,
        () => Divided::Spaces,
    }
}

/// Returns the cells of a line. At least two spaces divide.
pub(super) fn cells(text: &str, by: Divided) -> Vec<Cell> {
    let letters: Vec<char> = text.chars().collect();
    let mut cells = vec![];
    let mut enter = |from: usize, to: usize| {
        let inner: String = letters[from..to].iter().collect();
        let gap = inner.len() - inner.trim_start().len();
        let text = inner.trim().to_owned();
        let to = from + gap + text.chars().count();
        cells.push(Cell { text, from: from + gap, to });
    };
    let mut from = 0;
    match by {
        Divided::Bars | Divided::Commas => {
            let ends = |c: char| match by {
                Divided::Bars => "|│┃║".contains(c),
                _ => c == ',' || c == ';',
            };
            for (at, letter) in letters.iter().enumerate() {
                if ends(*letter) {
                    enter(from, at);
                    from = at + 1;
                }
            }
            enter(from, letters.len());
            if by == Divided::Bars {
                // Outer bars have nothing outside of them.
                if cells.first().is_some_and(|cell| cell.text.is_empty()) {
                    cells.remove(0);
                }
                if cells.last().is_some_and(|cell| cell.text.is_empty()) {
                    cells.pop();
                }
            }
        }
        Divided::Spaces => {
            let mut at = 0;
            while at < letters.len() {
                let start = at;
                while at < letters.len() && letters[at].is_whitespace() {
                    at += 1;
                }
                if at - start >= 2 {
                    if start > from {
                        enter(from, start);
                    }
                    from = at;
                }
                at += 1;
            }
            if from < letters.len() {
                enter(from, letters.len());
            }
            cells.retain(|cell| !cell.text.is_empty());
        }
    }
    cells
}

/// Returns the words of a text as cells.
pub(super) fn words(text: &str) -> Vec<Cell> {
    let mut from = 0;
    let mut all = vec![];
    for part in text.split(char::is_whitespace) {
        let to = from + part.chars().count();
        if to > from {
            all.push(Cell { text: part.to_owned(), from, to });
        }
        from = to + 1;
    }
    all
}

/// Returns the text of a line without the signs of Markdown. Tabs become two spaces or more, up to
/// the next column of eight.
pub(super) fn plain(line: &Line) -> String {
    let mut text = String::new();
    let mut column = 0;
    for letter in line.text.replace("**", "  ").replace('`', " ").chars() {
        let width = if letter == '\t' { (8 - column % 8).max(2) } else { 1 };
        let letter = if letter == '\t' { ' ' } else { letter };
        text.extend(std::iter::repeat_n(letter, width));
        column += width;
    }
    text
}

/// Reads a row. The label precedes the figures, and may be empty.
fn row(line: &Line) -> Option<Row> {
    let text = plain(line);
    let by = divided(&text);
    let all = cells(&text, by);
    let whole = |label: Cell, figures: Vec<Option<Figure>>, cells: usize| {
        let numbers = figures.iter().flatten().count();
        let enough = numbers >= FIGURES || numbers == 1 && !label.text.is_empty();
        enough.then_some(Row { line: line.number, label, figures, cells, divided: by })
    };
    if by != Divided::Spaces {
        let read = |cell: &Cell| {
            let words: Vec<&str> = cell.text.split_whitespace().collect();
            let figures = figure::figures(&words)?;
            match figures.len() {
                0 => Some(None),
                1 => figures.into_iter().next(),
                _ => None,
            }
        };
        let first = all.first()?;
        let is_label = read(first).flatten().is_none();
        let label = if is_label { first.clone() } else { Cell { text: String::new(), ..*first } };
        let figures: Option<Vec<_>> = all.iter().skip(usize::from(is_label)).map(read).collect();
        return whole(label, figures?, all.len());
    }
    let split = |cell: &Cell| cell.text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let parts: Vec<Vec<String>> = all.iter().map(split).collect();
    let rest = |from: usize| {
        let words: Vec<&str> = parts[from..].iter().flatten().map(String::as_str).collect();
        figure::figures(&words)
    };
    for cut in 0..all.len() {
        let names: Vec<&str> = all[..cut].iter().map(|cell| cell.text.as_str()).collect();
        if let Some(figures) = rest(cut) {
            let (from, to) = match cut {
                0 => (0, 0),
                _ => (all[0].from, all[cut - 1].to),
            };
            return whole(Cell { text: names.join(" "), from, to }, figures, 0);
        }
    }
    // With single spaces, the label ends before the first number.
    let each = words(&text);
    let cut = (1..each.len()).find(|cut| figure::word(&each[*cut].text).is_some())?;
    let texts: Vec<&str> = each.iter().map(|cell| cell.text.as_str()).collect();
    let figures = figure::figures(&texts[cut..])?;
    let label = Cell { text: texts[..cut].join(" "), from: each[0].from, to: each[cut - 1].to };
    whole(label, figures, 0)
}

/// Finds the next block of rows at or behind a line.
pub(super) fn block(lines: &[&Line], from: usize) -> Option<Block> {
    let (start, first) = (from..lines.len()).find_map(|at| Some((at, row(lines[at])?)))?;
    let mut rows = vec![first];
    let mut end = start + 1;
    let mut at = end;
    let mut unread = None;
    while let Some(line) = lines.get(at) {
        let first = &rows[0];
        let fits = |row: &Row| {
            row.figures.len() == first.figures.len()
                && row.divided == first.divided
                && row.label.text.is_empty() == first.label.text.is_empty()
        };
        match row(line).filter(fits) {
            Some(row) => {
                rows.push(row);
                end = at + 1;
            }
            None if is_border(line) || line.is_elision() => {}
            // A blank line divides rows of one table.
            None if line.is_blank()
                && lines.get(at + 1).and_then(|line| row(line)).is_some_and(|row| fits(&row)) => {}
            None => {
                unread = Some(line).filter(|line| row(line).is_none() && may_be_row(line));
                break;
            }
        }
        at += 1;
    }
    let mut above = vec![];
    let mut blanks = 0;
    for at in (from..start).rev() {
        let line = lines[at];
        match () {
            () if line.is_blank() && !is_border(line) => blanks += 1,
            () if is_border(line) => {}
            () => {
                above.push(at);
                blanks = 0;
            }
        }
        if above.len() >= ABOVE || blanks > 1 {
            break;
        }
    }
    Some(Block { rows, above, end, unread: unread.map(|line| line.number) })
}

/// Returns whether a line that is no row has figures as rows have them: in columns, or two of them.
fn may_be_row(line: &Line) -> bool {
    let text = plain(line);
    let is_figure = |word: &str| {
        let word = word.trim_start_matches(['+', '-', '(', '*', '~', '<', '>']);
        word.starts_with(|c: char| c.is_ascii_digit())
    };
    let cells = cells(&text, divided(&text));
    cells.len() >= 3 && cells.iter().filter(|cell| is_figure(&cell.text)).count() >= 2
}
