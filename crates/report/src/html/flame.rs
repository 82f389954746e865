//! Flame graphs, hanging: callers above their callees, each as wide as its share of the time.
//! Arms after the first one are coloured by the difference from it.

use maud::{Markup, html};
use mmscale_document::{ArmRecord, Document};

use super::matrix::holder;
use super::picture::Picture;
use super::scale::percent;
use crate::number::{change, percent as in_percent, scaled};

/// Pixels of a level.
const LEVEL: u32 = 18;
/// Minimum share of the whole that a function must have to be drawn, and to be named.
const DRAWN: f64 = 0.002;
const NAMED: f64 = 0.012;
/// Differences in percentage points of the whole from which on the colour is stronger.
const STEPS: [f64; 3] = [0.2, 1.0, 4.0];

/// A function with its time in each arm.
struct Node<'a> {
    name: &'a str,
    /// With what it calls, in ns, by arm.
    totals: Vec<f64>,
    callees: Vec<Node<'a>>,
}

impl<'a> Node<'a> {
    fn new(name: &'a str, arms: usize) -> Self {
        Self { name, totals: vec![0.0; arms], callees: vec![] }
    }

    /// Adds the time of a path below this function.
    fn add(&mut self, path: &mut dyn Iterator<Item = &'a str>, arm: usize, ns: f64) {
        self.totals[arm] += ns;
        let Some(name) = path.next() else { return };
        let arms = self.totals.len();
        let at = self.callees.iter().position(|callee| callee.name == name);
        let at = at.unwrap_or_else(|| {
            self.callees.push(Node::new(name, arms));
            self.callees.len() - 1
        });
        self.callees[at].add(path, arm, ns);
    }

    /// Puts the callees with the largest sum over arms first, in every arm at the same place.
    fn sort(&mut self) {
        let sum = |node: &Self| node.totals.iter().sum::<f64>();
        self.callees.sort_by(|a, b| sum(b).total_cmp(&sum(a)).then_with(|| a.name.cmp(b.name)));
        self.callees.iter_mut().for_each(Node::sort);
    }

    /// Returns the number of levels that are drawn in an arm.
    fn depth(&self, arm: usize, all: f64) -> u32 {
        let drawn = self.callees.iter().filter(|node| node.totals[arm] >= DRAWN * all);
        1 + drawn.map(|node| node.depth(arm, all)).max().unwrap_or(0)
    }
}

/// Returns the flame graphs of CPU time, and of waits.
pub(super) fn pictures(document: &Document) -> Vec<Picture> {
    let arms = document.arms.len();
    let mut cpu = Node::new("CPU time", arms);
    let mut waits = Node::new("waits for locks", arms);
    let names: Vec<Vec<String>> =
        document.arms.iter().map(|arm| arm.blame.iter().map(holder).collect()).collect();
    for (at, arm) in document.arms.iter().enumerate() {
        for call in &arm.calls {
            cpu.add(&mut call.path.iter().map(String::as_str), at, call.self_ns as f64);
        }
        add_waits(&mut waits, arm, &names[at], at);
    }
    let cpu_how = "Callers are above their callees; the width is the share of all CPU time, \
                   spinning included.";
    let waits_how = "A lock is above the functions that wait for it, and these are above what its \
                     holders did, where the run recorded it; the width is the share of all waits.";
    [(cpu, cpu_how), (waits, waits_how)]
        .into_iter()
        .filter_map(|(tree, how)| picture(document, tree, how))
        .collect()
}

/// Adds the waits of an arm: by holder for spin locks, if that was recorded.
fn add_waits<'a>(tree: &mut Node<'a>, arm: &'a ArmRecord, holders: &'a [String], at: usize) {
    for (row, holder) in arm.blame.iter().zip(holders) {
        let path = [row.class.as_str(), row.waiter.as_str(), holder.as_str()];
        tree.add(&mut path.into_iter(), at, row.wait_total_ns as f64);
    }
    for lock in arm.locks.iter().filter(|lock| lock.sleeps || arm.blame.is_empty()) {
        if lock.wait_total_ns > 0 {
            let path = [lock.class.as_str(), lock.site.as_str()];
            tree.add(&mut path.into_iter(), at, lock.wait_total_ns as f64);
        }
    }
}

fn picture(document: &Document, mut tree: Node<'_>, how: &str) -> Option<Picture> {
    if tree.totals.iter().all(|&total| total == 0.0) {
        return None;
    }
    tree.sort();
    let first = document.arms.first().map_or("", |arm| arm.arm.as_str());
    let seeds = |at: usize| document.arms[at].seeds.len().max(1) as f64;
    let body = html! {
        @for (at, arm) in document.arms.iter().enumerate() {
            @let all = tree.totals[at];
            p.name { b { (arm.arm) } ", in a run: " (scaled(all / seeds(at), "ns")) }
            @if all > 0.0 {
                svg.flame width="100%" height=(tree.depth(at, all) * LEVEL) {
                    (frame(&tree, at, 0.0, 0, tree.totals[0]))
                }
            }
        }
    };
    let compared = format!(
        " Red: a larger share than in {first}, blue: a smaller one. Point at a function for its \
         numbers."
    );
    let compared = if document.arms.len() > 1 { &compared } else { "" };
    Some(Picture {
        title: format!("Flame graph: {}", tree.name),
        how: format!("{how}{compared}"),
        wide: true,
        body,
    })
}

/// Draws a function and what it calls, from the share `from` on.
fn frame(node: &Node<'_>, arm: usize, from: f64, level: u32, base: f64) -> Markup {
    frame_of(node, arm, (from, level), (node.totals[arm], base))
}

fn frame_of(
    node: &Node<'_>,
    arm: usize,
    (from, level): (f64, u32),
    (all, base): (f64, f64),
) -> Markup {
    let share = node.totals[arm] / all;
    let in_first = if base > 0.0 { node.totals[0] / base } else { share };
    let points = 100.0 * (share - in_first);
    let colour = if arm == 0 { format!("f{}", level % 3) } else { colour(points) };
    let mut at = from;
    html! {
        svg x=(percent(from)) y=(level * LEVEL) width=(percent(share)) height=(LEVEL - 1) {
            title {
                (node.name) ": " (in_percent(100.0 * share)) " of " (scaled(all, "ns"))
                @if arm > 0 { ", " (change(points)) " of all" }
            }
            rect.(colour) width="100%" height="100%" {}
            @if share >= NAMED { text x="3" y="13" { (node.name) } }
        }
        @for callee in &node.callees {
            @let width = callee.totals[arm] / all;
            @if width >= DRAWN { (frame_of(callee, arm, (at, level + 1), (all, base))) }
            ({ at += width; "" })
        }
    }
}

/// Returns the colour of a difference in percentage points.
fn colour(points: f64) -> String {
    let strength = STEPS.iter().filter(|&&step| points.abs() >= step).count();
    match strength {
        0 => "same".to_owned(),
        n if points > 0.0 => format!("more{n}"),
        n => format!("less{n}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callees_are_within_their_callers() {
        let mut tree = Node::new("all", 2);
        for (path, arm, ns) in
            [("a b", 0, 30.0), ("a", 0, 10.0), ("c", 0, 60.0), ("c", 1, 50.0), ("a b", 1, 50.0)]
        {
            tree.add(&mut path.split(' '), arm, ns);
        }
        tree.sort();
        assert_eq!(tree.totals, [100.0, 100.0]);
        let names: Vec<&str> = tree.callees.iter().map(|node| node.name).collect();
        assert_eq!(names, ["c", "a"]);
        assert_eq!(tree.depth(0, 100.0), 3);
        let drawn = frame(&tree, 1, 0.0, 0, 100.0).into_string();
        assert!(drawn.contains(r#"<rect class="more3""#), "a b grew: {drawn}");
        assert!(drawn.contains(r#"<rect class="less3""#), "c shrank: {drawn}");
        assert!(drawn.contains(r#"x="50.00%" y="36" width="50.00%""#), "b is below a: {drawn}");
    }
}
