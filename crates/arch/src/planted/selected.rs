//! The fault that the environment selects. Compiled in test builds only: the rest of the crate
//! reads no environment and has no static state.

// tidy: without_std: compiled with the feature `planted` alone, which only test builds have
extern crate std;

use super::{Declared, Fault};
use alloc::vec::Vec;
// tidy: without_std: compiled with the feature `planted` alone, which only test builds have
use std::sync::OnceLock;

/// The environment variable that names the fault.
const VARIABLE: &str = "MMSCALE_PLANTED";

/// Initialised once: every later query is one load.
static SELECTED: OnceLock<Option<Fault>> = OnceLock::new();

/// Whether the environment selects this fault.
///
/// # Panics
/// If the variable has a name that no fault has.
pub(super) fn is_selected(fault: Fault) -> bool {
    *SELECTED.get_or_init(from_environment) == Some(fault)
}

fn from_environment() -> Option<Fault> {
    // tidy: without_std: compiled with the feature `planted` alone, which only test builds have
    let name = std::env::var(VARIABLE).ok().filter(|name| !name.is_empty())?;
    Some(by_name(&name).unwrap_or_else(|nearest| {
        panic!("{VARIABLE} is `{name}`, which no fault is called: did you mean `{nearest}`?")
    }))
}

/// Finds the fault with a name; the error is the most similar name.
fn by_name(name: &str) -> Result<Fault, &'static str> {
    if let Some(found) = Fault::ALL.iter().find(|declared| declared.name == name) {
        return Ok(found.fault);
    }
    let nearest = Fault::ALL.iter().min_by_key(|declared| distance(declared.name, name));
    Err(nearest.map_or("", |declared: &Declared| declared.name))
}

/// The edit distance: single-character edits that change `a` to `b`.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (above, &from) in a.as_bytes().iter().enumerate() {
        let mut corner = core::mem::replace(&mut row[0], above + 1);
        for (left, &to) in b.as_bytes().iter().enumerate() {
            let replaced = corner + usize::from(from != to);
            corner = row[left + 1];
            row[left + 1] = replaced.min(row[left] + 1).min(corner + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_answered_with_the_nearest() {
        assert_eq!(by_name("rcu-enough-early"), Ok(Fault::RcuEnoughEarly));
        assert_eq!(by_name("rcu-enuff-early"), Err("rcu-enough-early"));
        assert_eq!((distance("abc", "abc"), distance("abc", "xbcd")), (0, 2));
    }
}
