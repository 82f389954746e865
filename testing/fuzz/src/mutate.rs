//! Damage to texts: bytes, words and lines.

use crate::random::Random;

/// Texts that parsers treat in a special way, in any format.
const INSERTS: &[&[u8]] = &[
    b"\n",
    b"\r",
    b"\t",
    b"\0",
    b"\xff",
    b"\xef\xbb\xbf",
    b"\xc2\x9b2J",
    b"\x1b[31m",
    b"\x1b]0;title\x07",
    b"\"",
    b"'",
    b"\\",
    b"//",
    b"/*",
    b"*/",
    b"{",
    b"}",
    b"[",
    b"]",
    b"(",
    b")",
    b";",
    b"=",
    b":",
    b"..",
    b"-",
    b"--",
    b"+",
    b"%",
    b"|",
    b"> ",
    b"-> ",
    b"<script>",
    b"=1+1",
    "\u{202e}".as_bytes(),
    "\u{e9}\u{4e2d}\u{1f600}".as_bytes(),
];

/// Numbers at the ends of types, and things that look like numbers.
pub(crate) const NUMBERS: &[&str] = &[
    "0",
    "-0",
    "1",
    "-1",
    "2",
    "64",
    "127",
    "255",
    "4096",
    "65536",
    "2147483647",
    "2147483648",
    "4294967295",
    "4294967296",
    "9007199254740993",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "-9223372036854775808",
    "-9223372036854775809",
    "99999999999999999999999999999999",
    "0.1",
    "0.0000000000000000000000000001",
    "1e308",
    "-1e308",
    "1e400",
    "1e-400",
    "5e-324",
    "nan",
    "inf",
    "-inf",
    "0x10",
    "1_000",
    "1,000",
    "007",
    "1.5.2",
];

/// Changes some places of a text. `others` are texts of the same format.
pub(crate) fn text(random: &mut Random, bytes: &mut Vec<u8>, others: &[&[u8]]) {
    for _ in 0..=random.few(8) {
        match random.below(4) {
            0 | 1 => one_place(random, bytes, others),
            2 => word(random, bytes),
            _ => line(random, bytes),
        }
    }
}

/// Changes the bytes of one place.
fn one_place(random: &mut Random, bytes: &mut Vec<u8>, others: &[&[u8]]) {
    let range = random.range(bytes.len());
    match random.below(7) {
        0 => drop(bytes.drain(range)),
        1 => {
            let copy = bytes[range].to_vec();
            let at = random.below(bytes.len() + 1);
            bytes.splice(at..at, copy);
        }
        2 => {
            let insert = INSERTS[random.below(INSERTS.len())];
            bytes.splice(range, insert.iter().copied());
        }
        3 => {
            let noise: Vec<u8> = (0..random.below(9)).map(|_| random.bits() as u8).collect();
            bytes.splice(range, noise);
        }
        4 if !others.is_empty() => {
            let other = others[random.below(others.len())];
            let part = random.range(other.len());
            bytes.splice(range.start..range.start, other[part].iter().copied());
        }
        5 => {
            if let Some(byte) = bytes.get_mut(range.start) {
                *byte ^= 1 << random.below(8);
            }
        }
        _ if random.percent(20) => bytes.truncate(range.end),
        _ => {
            let at = random.below(bytes.len() + 1);
            let number = NUMBERS[random.below(NUMBERS.len())];
            bytes.splice(at..at, number.bytes());
        }
    }
}

/// Removes, repeats, swaps, misspells or replaces a word or a number.
fn word(random: &mut Random, bytes: &mut Vec<u8>) {
    let (one, other) = (word_at(random, bytes), word_at(random, bytes));
    let (Some(one), Some(other)) = (one, other) else { return };
    let first = bytes[one.clone()].to_vec();
    match random.below(6) {
        0 => drop(bytes.drain(one)),
        1 => _ = bytes.splice(one.start..one.start, [&first[..], b" "].concat()),
        2 => _ = bytes.splice(other, first),
        3 => {
            let at = one.start + random.below(first.len());
            bytes[at] = b"abcdexyz_01;"[random.below(12)];
        }
        4 if first[0].is_ascii_digit() => {
            let number = NUMBERS[random.below(NUMBERS.len())];
            bytes.splice(one, number.bytes());
        }
        _ => {
            let times = if random.percent(2) { 40_000 } else { random.few(60) };
            let long = first.repeat(1 + times / first.len());
            bytes.splice(one, long);
        }
    }
}

/// Returns the place of the next word behind a random byte.
fn word_at(random: &mut Random, bytes: &[u8]) -> Option<std::ops::Range<usize>> {
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let at = random.below(bytes.len());
    let from = at + bytes[at..].iter().position(is_word)?;
    let from = from - bytes[..from].iter().rev().take_while(|byte| is_word(byte)).count();
    let length = bytes[from..].iter().take_while(|byte| is_word(byte)).count();
    Some(from..from + length)
}

/// Removes, repeats, joins or moves a line.
fn line(random: &mut Random, bytes: &mut Vec<u8>) {
    let at = random.below(bytes.len() + 1);
    let from = bytes[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let length = bytes[from..].iter().position(|byte| *byte == b'\n');
    let to = length.map_or(bytes.len(), |length| from + length + 1);
    let copy = bytes[from..to].to_vec();
    match random.below(4) {
        0 => drop(bytes.drain(from..to)),
        1 => {
            let times = if random.percent(3) { 3_000 } else { 1 + random.few(40) };
            let times = times.min(300_000 / copy.len().max(1));
            bytes.splice(from..from, copy.repeat(times));
        }
        2 if to > from => drop(bytes.remove(to - 1)),
        _ => {
            bytes.drain(from..to);
            let to = random.below(bytes.len() + 1);
            bytes.splice(to..to, copy);
        }
    }
}
