//! Values of random scripts: literals and expressions of each type.

use super::text::{KINDS, Kind, Text};
use crate::mutate::NUMBERS;
use Kind::{File, Memory, Number, Pidfd, Process, Size, Thread, Time};

/// Large numbers that are fine, at least without a unit.
const WHOLE: &[&str] = &[
    "0",
    "1",
    "4095",
    "65_536",
    "2147483648",
    "4294967295",
    "1099511627776",
    "9223372036854775807",
];

impl Text<'_> {
    /// Returns a literal.
    pub(super) fn literal(&mut self, kind: Kind) -> String {
        let units: &[&str] = match kind {
            Size => &["pages", "page", "KiB", "MiB", "GiB", "B"],
            Time => &["ns", "us", "ms", "s"],
            _ => &[""],
        };
        let (number, unit) = if self.small {
            let most = [9, 9, 40][self.random.below(3)];
            (self.random.below(most).to_string(), [units[0], units[1.min(units.len() - 1)]])
        } else {
            let number = match self.random.below(20) {
                0 => self.random.one_of(WHOLE).to_owned(),
                1 if kind != Number => "0.5".to_owned(),
                _ => self.random.few(300).to_string(),
            };
            let unit =
                if number == "0.5" { units[units.len() / 2] } else { self.random.one_of(units) };
            (number, [unit, unit])
        };
        let unit = self.random.one_of(&unit).to_owned();
        if self.slip() {
            if self.random.percent(50) {
                return format!("{}{unit}", self.random.one_of(NUMBERS));
            }
            let wrong = ["pages", "us", "MB", "min", "", "kib", "GiB", "°"];
            return format!("{number} {}", self.random.one_of(&wrong));
        }
        let blank = if self.random.percent(50) { " " } else { "" };
        format!("{number}{blank}{unit}")
    }

    /// Returns a variable of a type, if there is one.
    pub(super) fn variable(&mut self, kind: Kind) -> Option<String> {
        let of_kind = |(_, of): &&(String, Kind)| *of == kind;
        let count = self.names.iter().filter(of_kind).count();
        let at = self.random.below(count);
        let name = self.names.iter().filter(of_kind).nth(at)?.0.clone();
        Some(self.word(&name))
    }

    /// Returns an expression of a type.
    pub(super) fn value(&mut self, kind: Kind, depth: usize) -> String {
        if self.slip() {
            let other = KINDS[self.random.below(KINDS.len())];
            return match self.random.below(4) {
                0 => String::new(),
                1 => self.random.one_of(&["nothing", "POPULATE", "loop", "a.b", "1 2"]).to_owned(),
                _ => self.value(other, depth),
            };
        }
        if depth == 0 || self.random.percent(35) {
            return self.leaf(kind);
        }
        match kind {
            Number => self.number(depth - 1),
            Size => self.size(depth - 1),
            Time => self.time(depth - 1),
            Memory | File => self.part(kind, depth - 1),
            Process | Thread | Pidfd => self.leaf(kind),
        }
    }

    fn leaf(&mut self, kind: Kind) -> String {
        if self.random.percent(60)
            && let Some(name) = self.variable(kind)
        {
            return name;
        }
        let known = |text: &mut Self, names: &[&str]| {
            let name = text.random.one_of(names).to_owned();
            text.word(&name)
        };
        match kind {
            Number if self.random.percent(30) => known(self, &["cpu", "cpus", "nodes", "ok"]),
            Time if self.random.percent(10) => known(self, &["now"]),
            Number | Size | Time => self.literal(kind),
            // There is no variable of the type: a name that is unknown, or a call where it is
            // allowed.
            Memory => self.variable(kind).unwrap_or_else(|| "mmap(4 pages)".to_owned()),
            File => self.variable(kind).unwrap_or_else(|| "memfd_create(4 pages)".to_owned()),
            // Only written if there is one.
            Process | Thread | Pidfd => self.variable(kind).unwrap_or_else(|| "unknown".to_owned()),
        }
    }

    /// Returns an expression that keeps its type next to an operator.
    fn operand(&mut self, kind: Kind, depth: usize) -> String {
        let value = self.value(kind, depth);
        let is_plain = value.chars().all(|letter| letter.is_alphanumeric());
        if is_plain || self.slip() { value } else { format!("({value})") }
    }
    fn number(&mut self, depth: usize) -> String {
        let scalar = [Number, Size, Time][self.random.below(3)];
        let (a, b) = (self.operand(scalar, depth), self.operand(scalar, depth));
        let (n, m) = (self.operand(Number, depth), self.operand(Number, depth));
        match self.random.below(9) {
            0 => format!("{a} {} {b}", self.random.one_of(&["==", "!=", "<", ">", "<=", ">="])),
            1 => format!("{n} {} {m}", self.random.one_of(&["||", "&&", "+", "-", "*", "/", "%"])),
            2 => format!("({a} / {b})"),
            3 => format!("!{n}"),
            4 => format!("-{n}"),
            5 => format!("rand({n})"),
            6 => format!("rand({n}, {m})"),
            7 => format!("{}({n}, {m})", self.random.one_of(&["min", "max"])),
            _ => {
                let kind = if self.random.percent(50) { Memory } else { File };
                format!("pages({})", self.value(kind, depth))
            }
        }
    }
    fn size(&mut self, depth: usize) -> String {
        let (a, b, n) = (self.operand(Size, depth), self.operand(Size, depth), self.leaf(Number));
        match self.random.below(6) {
            0 => format!("{a} {} {b}", self.random.one_of(&["+", "-", "%"])),
            1 => format!("{n} * {a}"),
            2 => format!("({a}) * {n}"),
            3 => format!("{a} / {n}"),
            4 => format!("size({})", self.value(Memory, depth)),
            _ => format!("{}({a}, {b})", self.random.one_of(&["min", "max", "rand"])),
        }
    }
    fn time(&mut self, depth: usize) -> String {
        let (a, b, n) = (self.operand(Time, depth), self.operand(Time, depth), self.leaf(Number));
        match self.random.below(4) {
            0 => format!("{a} {} {b}", self.random.one_of(&["+", "-", "%"])),
            1 => format!("{n} * {a}"),
            2 => format!("-({a})"),
            _ => format!("{}({a}, {b})", self.random.one_of(&["min", "max", "rand"])),
        }
    }
    /// Returns a part of memory or of a file.
    fn part(&mut self, kind: Kind, depth: usize) -> String {
        let whole = self.leaf(kind);
        let end = if self.random.percent(50) { Number } else { Size };
        let (from, to, page) =
            (self.value(end, depth), self.value(end, depth), self.value(Number, depth));
        match self.random.below(6) {
            0 => format!("{whole}[{page}]"),
            1 => format!("{whole}[{from}..{to}]"),
            2 => format!("{whole}[{from}..]"),
            3 => format!("{whole}[..{to}]"),
            4 => format!("{whole}[..]"),
            _ => whole,
        }
    }
}
