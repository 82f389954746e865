//! The lines of the plugin for each round; `plugin/instructions.c` has the form of the lines.

use std::collections::HashMap;
use std::io;

/// Calls of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Calls {
    pub(super) calls: u64,
    /// Instructions with those of the functions that it calls.
    pub(super) inclusive: u64,
    /// Its own.
    pub(super) own: u64,
    /// Locked ones, as `inclusive`.
    pub(super) locked: u64,
    /// Calls in which the CPU went to another task. They are not among `calls`.
    pub(super) disturbed: u64,
    /// Numbers of calls by their instructions, as `inclusive`.
    pub(super) lengths: Vec<(u64, u64)>,
}

/// Where a lock is acquired: the caller's caller, the caller, the function that acquires. Rows of
/// the table of symbols, -1 for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Site {
    pub(super) outer: i32,
    pub(super) caller: i32,
    pub(super) acquire: i32,
}

/// Holds of a lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) holds: u64,
    pub(super) instructions: u64,
    pub(super) locked: u64,
    /// Numbers of holds by their instructions.
    pub(super) lengths: Vec<(u64, u64)>,
    /// Numbers of holds by the lock's address.
    pub(super) addresses: Vec<(u64, u64)>,
}

/// A round of the program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Round {
    pub(super) instructions: u64,
    pub(super) locked: u64,
    pub(super) functions: HashMap<i32, Calls>,
    pub(super) holds: HashMap<Site, Held>,
}

/// Reads the rounds.
///
/// # Errors
/// A line is none of the plugin's, or the plugin lost something: its tables were too small.
pub(super) fn rounds(text: &str) -> io::Result<Vec<Round>> {
    let mut rounds: Vec<Round> = Vec::new();
    for line in text.lines() {
        let wrong = || io::Error::other(format!("unknown line `{line}`"));
        let (kind, rest) = line.split_once(' ').ok_or_else(wrong)?;
        let words: Vec<&str> = rest.split(' ').collect();
        if kind == "R" {
            let [instructions, locked] = numbers(&words).ok_or_else(wrong)?;
            rounds.push(Round { instructions, locked, ..Round::default() });
            continue;
        }
        let round = rounds.last_mut().ok_or_else(wrong)?;
        note(round, kind, &words).ok_or_else(wrong)??;
    }
    Ok(rounds)
}

/// Notes a line of a round. `None` if it is none of the plugin's.
fn note(round: &mut Round, kind: &str, words: &[&str]) -> Option<io::Result<()>> {
    match kind {
        "F" | "f" | "D" => {
            let calls = round.functions.entry(words.first()?.parse().ok()?).or_default();
            let rest = &words[1..];
            match kind {
                "F" => {
                    [calls.calls, calls.inclusive, calls.own, calls.locked] = numbers(rest)?;
                }
                "f" => {
                    let [length, count] = numbers(rest)?;
                    calls.lengths.push((length, count));
                }
                _ => [calls.disturbed] = numbers(rest)?,
            }
        }
        "H" | "h" | "A" => {
            let (site, rest) = words.split_at_checked(3)?;
            let row = |at: usize| site[at].parse().ok();
            let site = Site { outer: row(0)?, caller: row(1)?, acquire: row(2)? };
            let held = round.holds.entry(site).or_default();
            match kind {
                "H" => [held.holds, held.instructions, held.locked] = numbers(rest)?,
                "h" => {
                    let [length, count] = numbers(rest)?;
                    held.lengths.push((length, count));
                }
                _ => {
                    let [address, count] = rest else { return None };
                    let address = u64::from_str_radix(address, 16).ok()?;
                    held.addresses.push((address, count.parse().ok()?));
                }
            }
        }
        "L" => {
            let [kind, count] = numbers(words)?;
            let what = ["counts", "frames of stacks", "holds"].get(kind as usize)?;
            let why = format!("a round is too large for the plugin: it lost {count} {what}");
            return Some(Err(io::Error::other(why)));
        }
        _ => return None,
    }
    Some(Ok(()))
}

fn numbers<const N: usize>(words: &[&str]) -> Option<[u64; N]> {
    let numbers: Option<Vec<u64>> = words.iter().map(|word| word.parse().ok()).collect();
    numbers?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_read() {
        let text = "R 100 5\nF 3 2 80 50 4\nf 3 40 2\nD 4 1\nH 1 2 3 2 30 1\nh 1 2 3 15 2\n\
                    A 1 2 3 ffff888000000010 2\nR 90 4\n";
        let read = rounds(text).unwrap();
        assert_eq!((read.len(), read[1].instructions), (2, 90));
        let calls = &read[0].functions[&3];
        assert_eq!((calls.calls, calls.inclusive, calls.own, calls.locked), (2, 80, 50, 4));
        assert_eq!((&calls.lengths[..], read[0].functions[&4].disturbed), (&[(40, 2)][..], 1));
        let held = &read[0].holds[&Site { outer: 1, caller: 2, acquire: 3 }];
        assert_eq!((held.holds, held.instructions, held.locked), (2, 30, 1));
        assert_eq!(held.addresses, [(0xffff_8880_0000_0010, 2)]);
    }

    #[test]
    fn broken_counts_and_losses_are_errors() {
        for wrong in ["F 1 2 3 4 5\n", "R 1\n", "R 1 2\nX 1\n", "R 1 2\nF 1 2\n", "R 1 2\nH 1 2\n"]
        {
            assert!(rounds(wrong).is_err(), "{wrong}");
        }
        let why = rounds("R 1 2\nL 0 7\n").unwrap_err().to_string();
        assert!(why.contains("lost 7 counts"), "{why}");
    }
}
