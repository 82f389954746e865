//! Operators and numbers of C.

use crate::ast::{Binary, Unit};

/// How tightly an operator binds; a value without one binds most.
pub(super) const LEAST: u8 = 0;
pub(super) const PREFIX: u8 = 11;
pub(super) const MOST: u8 = 12;

/// Returns an operator, and how tightly it binds.
pub(super) const fn operator(binary: Binary) -> (&'static str, u8) {
    match binary {
        Binary::Or => ("||", 3),
        Binary::And => ("&&", 4),
        Binary::Equal => ("==", 6),
        Binary::Unequal => ("!=", 6),
        Binary::AtMost => ("<=", 7),
        Binary::AtLeast => (">=", 7),
        Binary::Less => ("<", 7),
        Binary::More => (">", 7),
        Binary::Add => ("+", 9),
        Binary::Subtract => ("-", 9),
        Binary::Multiply => ("*", 10),
        Binary::Divide => ("/", 10),
        Binary::Remainder => ("%", 10),
    }
}

/// Returns a number with its unit, and how tightly it binds.
pub(super) fn literal(value: i64, unit: Unit) -> (String, u8) {
    let page = mmscale_system::PAGE_BYTES as i64;
    let scaled = |factor: i64| (value != 0 && value % factor == 0).then(|| value / factor);
    match unit {
        Unit::Pages if value == page => ("PAGE".to_owned(), MOST),
        Unit::Pages if value % page == 0 && value != 0 => (format!("{} * PAGE", value / page), 10),
        Unit::Bytes if value >= 1 << 10 => {
            let shifts = [(1_i64 << 30, 30), (1 << 20, 20), (1 << 10, 10)];
            let found = shifts.iter().find_map(|(by, bits)| scaled(*by).map(|n| (n, *bits)));
            found.map_or((value.to_string(), MOST), |(n, bits)| (format!("{n}L << {bits}"), 8))
        }
        Unit::Time => {
            let units = [
                (1_000_000_000, "NSEC_PER_SEC"),
                (1_000_000, "NSEC_PER_MSEC"),
                (1000, "NSEC_PER_USEC"),
            ];
            let found = units.iter().find_map(|(by, name)| scaled(*by).map(|n| (n, *name)));
            found.map_or((value.to_string(), MOST), |(n, name)| match n {
                1 => (name.to_owned(), MOST),
                n => (format!("{n} * {name}"), 10),
            })
        }
        _ if i32::try_from(value).is_ok() => (value.to_string(), MOST),
        _ => (format!("{value}L"), MOST),
    }
}

/// Returns a value as the body of a macro.
pub(super) fn of_macro(value: i64, unit: Unit) -> String {
    let (text, binds) = literal(value, unit);
    if binds < MOST || value < 0 { format!("({text})") } else { text }
}

/// Returns the operator of `a = a + b` as in `a += b`.
pub(super) const fn assigning(binary: Binary) -> Option<&'static str> {
    match binary {
        Binary::Add | Binary::Subtract | Binary::Multiply | Binary::Divide | Binary::Remainder => {
            Some(operator(binary).0)
        }
        _ => None,
    }
}
