//! Folded stacks: a line for each call path with its time, for any flame-graph tool.

use std::collections::BTreeMap;

use mmscale_document::{Interval, Stretch, Timeline, WaitSpan, plain};

/// Formats the call paths of a timeline within `window`, each with its time in ns. A wait is a
/// frame below the function that waits.
pub fn folded(timeline: &Timeline, window: Interval) -> String {
    let mut sums = BTreeMap::<String, u64>::new();
    let mut waits = BTreeMap::<u32, Vec<&WaitSpan>>::new();
    timeline.waits.iter().for_each(|wait| waits.entry(wait.cpu).or_default().push(wait));
    for stretch in timeline.stretches.iter().filter(|stretch| stretch.task.is_some()) {
        let Some(at) = stretch.at.within(window) else { continue };
        let mut waited = 0;
        for wait in waits.get(&stretch.cpu).into_iter().flatten() {
            // Interrupts during a wait have paths of their own.
            let Some(part) = wait.at.within(at).filter(|_| wait.path == stretch.path) else {
                continue;
            };
            waited += part.ps();
            let frame = format!("{};waits for {}", stack(stretch), wait.lock.class);
            *sums.entry(frame).or_default() += part.ps();
        }
        *sums.entry(stack(stretch)).or_default() += at.ps().saturating_sub(waited);
    }
    let lines = sums.into_iter().filter(|(_, ps)| *ps >= 1000);
    lines.map(|(stack, ps)| format!("{} {}\n", plain(&stack), ps / 1000)).collect()
}

fn stack(stretch: &Stretch) -> String {
    if stretch.path.is_empty() { "program".to_owned() } else { stretch.path.join(";") }
}
