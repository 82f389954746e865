//! The longest sections during which CPUs could not switch tasks, with the causes of waiting.

use mmscale_document::{ArmRecord, Document, SectionRecord};

use super::wrap;
use crate::number::scaled;

/// Number of sections shown per arm.
const SHOWN: usize = 5;

/// Returns the lines on sections; none if none was collected.
pub(super) fn lines(document: &Document) -> Vec<String> {
    if document.arms.iter().all(|arm| arm.sections.is_empty()) {
        return vec![];
    }
    let what = "longest sections without preemption, of all seeds: where most of it passed, and \
                what it waited for; the rest is work";
    let mut lines = vec![String::new()];
    lines.extend(wrap(what, "", "  "));
    for arm in &document.arms {
        lines.push(arm.arm.clone());
        longest(arm).into_iter().for_each(|section| lines.extend(entry(section)));
    }
    lines
}

fn longest(arm: &ArmRecord) -> Vec<&SectionRecord> {
    let mut sections: Vec<&SectionRecord> = arm.sections.iter().collect();
    sections.sort_by_key(|section| std::cmp::Reverse(section.ns));
    sections.truncate(SHOWN);
    sections
}

fn entry(section: &SectionRecord) -> Vec<String> {
    let first = format!("{:>10} cpu{:<4}", scaled(section.ns as f64, "ns"), section.cpu);
    let waits: Vec<String> = section
        .waits
        .iter()
        .map(|wait| format!("{} {}", wait.what, scaled(wait.ns as f64, "ns")))
        .collect();
    let waits = if waits.is_empty() { "nothing".to_owned() } else { waits.join(", ") };
    let path = section.path.join(" > ");
    wrap(&format!("{path}; waited for {waits}"), &format!("{first} "), &" ".repeat(19))
}
