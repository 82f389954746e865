//! Profiles of several events: `perf report --group`, or of `perf record -e '{a,b}'`.
//!
//! ```text
//! # Samples: 20K of events 'anon group { cycles, instructions }'
//! #         Overhead  Command  Shared Object      Symbol
//!     43.10%  20.07%  usemem   [kernel.kallsyms]  [k] native_queued_spin_lock_slowpath
//! ```

use crate::number::real;
use crate::text::Line;

/// Returns the lines with the shares of the first event only, and a note. `None` if no row has
/// those of several events.
pub(crate) fn of_leader(lines: &[Line]) -> Option<(Vec<Line>, String)> {
    let several = |line: &Line| {
        names(&line.text).is_some_and(|names| names.len() > 1) || shares(&line.text).len() > 2
    };
    if !lines.iter().any(several) {
        return None;
    }
    let mut events = None;
    let (mut all, mut first): (Vec<Line>, Option<(String, usize)>) = (lines.to_vec(), None);
    for line in &mut all {
        if let Some(names) = names(&line.text) {
            events = Some(names);
            continue;
        }
        let shares = shares(&line.text);
        let n = match &events {
            Some(names) if names.len() > 1 => names.len(),
            // One event has its share, and that with callees.
            Some(_) => continue,
            None if shares.len() > 2 => shares.len(),
            None => continue,
        };
        // With callees each event has two shares.
        let kept: &[usize] = match shares.len() {
            all if all == n => &[0],
            all if all == 2 * n => &[0, n],
            _ => continue,
        };
        let mut text = line.text.clone();
        for (at, range) in shares.iter().enumerate().filter(|(at, _)| !kept.contains(at)) {
            debug_assert!(at > 0, "the first share is kept");
            text.replace_range(range.clone(), &" ".repeat(range.len()));
        }
        line.text = text;
        if first.is_none() {
            let what = events.as_ref().map_or("the first".to_owned(), |names| names[0].clone());
            first = Some((what, line.number));
        }
    }
    let (event, line) = first?;
    let note = format!("line {line}: rows have shares of several events: only {event} is counted");
    Some((all, note))
}

/// Returns the events of a heading.
fn names(text: &str) -> Option<Vec<String>> {
    let heading =
        text.trim().strip_prefix("# Samples:").or_else(|| text.trim().strip_prefix("Samples:"))?;
    let (_, inner) = heading.split_once("of event")?;
    let inner = inner.strip_prefix('s').unwrap_or(inner).trim_start().strip_prefix('\'')?;
    let inner = inner.rsplit_once('\'').map_or(inner, |(inner, _)| inner);
    let inner = inner.split_once('{').map_or(inner, |(_, inner)| inner);
    let names = inner.trim_end_matches(['}', ' ']).split(',');
    let names: Vec<String> = names.map(|name| name.trim().to_owned()).collect();
    // The parameters of an event have commas, too: `cpu/event=0x3c,umask=0x1/`.
    Some(if inner.contains('/') && !text.contains("group") {
        vec![inner.to_owned()]
    } else {
        names
    })
}

/// Returns the places of the shares at the beginning of a row.
fn shares(text: &str) -> Vec<std::ops::Range<usize>> {
    let mut places = vec![];
    let sign = text.trim_start().strip_prefix(['-', '+']).filter(|rest| rest.starts_with(' '));
    let mut at = text.len() - sign.unwrap_or(text).len();
    loop {
        let rest = &text[at..];
        let start = at + rest.len() - rest.trim_start().len();
        let Some(word) = text[start..].split_ascii_whitespace().next() else { return places };
        let share = word.strip_suffix('%').filter(|n| n.contains('.'));
        if share.and_then(real).is_none_or(|share| share > 100.0) {
            return places;
        }
        places.push(start..start + word.len());
        at = start + word.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::lines;

    fn of(text: &str) -> Option<Vec<String>> {
        let (lines, _) = of_leader(&lines(text))?;
        Some(lines.into_iter().map(|line| line.text).collect())
    }

    #[test]
    fn rows_have_the_share_of_the_first_event() {
        let heading = "# Samples: 20K of events 'anon group { cycles, instructions }'\n";
        let row = "    43.10%  20.07%  a  [kernel]  [k] f_g";
        let kept = "    43.10%          a  [kernel]  [k] f_g";
        assert_eq!(of(&format!("{heading}{row}\n")).unwrap()[1], kept);
        let two = "  50.00%  20.00%  43.10%  20.07%  a  [kernel]  [k] f_g";
        let kept = "  50.00%          43.10%          a  [kernel]  [k] f_g";
        assert_eq!(of(&format!("{heading}{two}\n")).unwrap()[1], kept);
        let three = "  43.10%  20.07%  1.00%  a  [kernel]  [k] f_g";
        assert!(of(three).unwrap()[0].starts_with("  43.10%                 a"));
        assert_eq!(of(row), None, "a share with callees, and one without");
        assert_eq!(of(&format!("# Samples: 20K of event 'cycles'\n{row}\n")), None);
    }
}
