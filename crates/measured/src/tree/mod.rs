//! Call trees of `perf report` and `perf top`, in all forms.
//!
//! ```text
//!     43.10%  usemem  [kernel.kallsyms]  [k] native_queued_spin_lock_slowpath
//!             |
//!             ---native_queued_spin_lock_slowpath
//!                _raw_spin_lock_irqsave
//!                |
//!                |--22.10%--release_pages
//!                |          tlb_batch_pages_flush
//!                |
//!                 --21.00%--folio_batch_move_lru
//! ```
//!
//! A name without a share continues the chain above it: it has the share of the branch. The
//! terminal has signs in place of dashes:
//!
//! ```text
//! -   43.10%  usemem  [kernel.kallsyms]  [k] native_queued_spin_lock_slowpath
//!    - 43.10% release_pages
//!         tlb_batch_pages_flush
//! ```
//!
//! Three facts are not in a tree and are inferred from all trees of a file:
//!
//! - Shares are of all samples, or of the samples of the caller (versions before 4.4, `-g
//!   fractal`): they are the latter if callees have more than their caller somewhere.
//! - The first function is the outermost or the innermost: [`order`].
//! - A row with two shares is with callees, so that the rows of callers and callees have the same
//!   samples: [`chosen`].

mod group;
mod order;
mod row;

use std::collections::BTreeSet;

use mmscale_document::is_acquiring;

use crate::role::side;

use crate::stacks::{Stack, Unit};
use crate::text::Line;
pub(crate) use group::of_leader;
use row::{Branch, Entry, Form, ITSELF, Row, row};

/// A function of a tree.
struct Node {
    name: String,
    /// The share as written, in percent. A function of a chain has none.
    percent: Option<f64>,
    /// The index of the function above.
    parent: Option<usize>,
    /// The column of its mark.
    mark: usize,
    line: usize,
}

/// A row of the table with its tree, or a tree alone.
pub(crate) struct Tree {
    entry: Option<Entry>,
    nodes: Vec<Node>,
    /// Whether a branch is written as versions do that give shares of the caller.
    old: bool,
    /// Whether it has branches with dashes or bars.
    has_branches: bool,
    /// The line at which a mail program broke it so that its structure is lost.
    torn: Option<usize>,
    line: usize,
    /// Whether the text before it begins another profile.
    begins: bool,
    /// The index of the line after it.
    pub(crate) end: usize,
}

/// The sum of shares in percent.
#[derive(Clone, Copy, Default)]
struct Sum {
    percent: f64,
    count: u32,
}

impl Sum {
    /// Returns whether it is more than a share, by more than the rounding of its parts.
    fn exceeds(self, own: f64) -> bool {
        self.percent > own + 0.5 + 0.01 * f64::from(self.count)
    }
    /// Returns whether shares are of the samples of a caller that has a share. Callees have a
    /// little more than it in `perf top`, where samples decay.
    fn is_of_caller(self, own: f64) -> bool {
        self.exceeds(own) && (self.percent >= HALF || self.percent > DECAY * own)
    }
}

/// Shares below this are noise of rounding.
const LEAST: f64 = 0.0005;

/// How much more than its caller a function may have by the decay of samples.
const DECAY: f64 = 1.3;

/// Shares of the caller have a sum that is near 100 %, so at least this.
const HALF: f64 = 50.0;

/// The longest tree; the rest of a longer one is another.
const MAX_NODES: usize = 10_000;

/// How far a branch may be to the left of all bars and branches before it; one further out was
/// broken off by a mail program.
const LEFT: usize = 3;

/// How far the column of a chain may be from the name of its branch.
const SLACK: usize = 2;

/// A branch that may have callees still.
struct Open {
    /// The number of bars before its callees: one for each function with a branch that follows.
    bars: usize,
    mark: usize,
    column: usize,
    node: usize,
    percent: bool,
    screen: bool,
}

/// Reads the row and the tree that begin at a line.
pub(crate) fn parse(lines: &[Line], from: usize) -> Option<Tree> {
    let tree = parse_by(lines, from, false)?;
    let Some(line) = lines[from..tree.end].iter().find(|line| line.broken) else {
        return Some(tree);
    };
    let mut by_bars = parse_by(lines, from, true)?;
    // Shares of the caller are not distinguished from a structure that is read wrongly.
    if by_bars.torn.is_none() && !by_bars.old && by_bars.is_relative() {
        by_bars.torn = Some(line.number);
    }
    Some(by_bars)
}

/// Returns the number of bars before the branch or the function of a line, and whether the branch
/// has one itself, so that a further branch of the same caller follows.
fn bars(text: &str) -> (usize, bool) {
    let end = text.find(|c: char| c != '|' && !c.is_whitespace()).unwrap_or(text.len());
    let own = text[..end].ends_with('|') && text[end..].starts_with("--");
    (text[..end].matches('|').count() - usize::from(own), own)
}

/// Reads a tree whose structure follows from the columns of its lines, or else from their bars.
fn parse_by(lines: &[Line], from: usize, by_bars: bool) -> Option<Tree> {
    let mut tree = Tree {
        entry: None,
        nodes: vec![],
        old: false,
        has_branches: false,
        torn: None,
        line: lines[from].number,
        begins: false,
        end: from + 1,
    };
    let mut at = from;
    match row(&lines[from].text, false)? {
        Row::Entry(entry) => {
            tree.entry = Some(entry);
            at += 1;
            // A blank line may follow the row.
            let blank = lines.get(at).is_some_and(Line::is_blank);
            let next = lines.get(at + 1).and_then(|line| row(&line.text, false));
            if blank && matches!(next, Some(Row::Branch(_) | Row::Bars)) {
                at += 1;
            }
        }
        Row::Branch(_) => {}
        Row::Bars | Row::Chain(..) => return None,
    }
    let mut open: Vec<Open> = vec![];
    // The leftmost column of a bar or a branch.
    let mut least = usize::MAX;
    while let Some(line) = lines.get(at) {
        let inside = !tree.nodes.is_empty() || tree.entry.is_some();
        let Some(next) = row(&line.text, inside) else {
            match after_reply(lines, at, &open).or_else(|| after_elision(lines, at, &open)) {
                Some(next) => at = next,
                None => break,
            }
            continue;
        };
        match next {
            Row::Entry(_) => break,
            Row::Bars => {}
            _ if tree.nodes.len() == MAX_NODES => break,
            Row::Branch(branch) => {
                if is_second(&tree, &open, &branch) {
                    break;
                }
                let is_left = !line.broken && branch.mark.saturating_add(LEFT) < least;
                if is_left && matches!(branch.form, Form::Dashes | Form::Old) && least < usize::MAX
                {
                    tree.torn = tree.torn.or(Some(line.number));
                }
                least = least.min(branch.mark);
                if by_bars {
                    tree.old |= branch.form == Form::Old;
                    tree.below_bars(&mut open, &branch.name, branch.percent, line);
                } else {
                    tree.branch(&mut open, branch, line.number);
                }
            }
            Row::Chain(_, name) if by_bars => {
                tree.below_bars(&mut open, &name, None, line);
            }
            Row::Chain(column, name) => {
                if !tree.chain(&mut open, column, name, line) {
                    break;
                }
            }
        }
        least = least.min(line.text.find('|').unwrap_or(usize::MAX));
        at += 1;
        tree.end = at;
    }
    (tree.entry.is_some() || tree.is_tree()).then_some(tree)
}

/// The most lines of a reply between the parts of a quoted tree.
const MAX_REPLY: usize = 12;

/// Returns the index of the line with which a quoted tree goes on behind the reply that begins at a
/// line: a branch in a column of the tree, with a share.
fn after_reply(lines: &[Line], at: usize, open: &[Open]) -> Option<usize> {
    let depth = lines.get(at.checked_sub(1)?)?.quote;
    let reply = lines[at..].iter().take_while(|line| line.quote < depth).count();
    let next = lines.get(at + reply).filter(|next| next.quote == depth)?;
    let Some(Row::Branch(branch)) = row(&next.text, true) else { return None };
    let fits = open.iter().any(|last| last.mark == branch.mark && last.percent);
    (reply > 0 && reply <= MAX_REPLY && fits && branch.percent.is_some()).then_some(at + reply)
}

/// The most lines of a mark of rows that were left out, with blank lines.
const MAX_ELISION: usize = 4;

/// Returns the index of the line with which a tree goes on behind the mark of rows that were left
/// out.
fn after_elision(lines: &[Line], at: usize, open: &[Open]) -> Option<usize> {
    let is_gap = |line: &&Line| line.is_elision() || line.is_blank();
    let gap = lines[at..].iter().take_while(is_gap).count();
    let next = lines.get(at + gap)?;
    let goes_on = match row(&next.text, true)? {
        Row::Branch(branch) => {
            let first = open.first().map_or(0, |first| first.mark);
            branch.form != Form::Root && branch.mark >= first
        }
        Row::Bars => true,
        Row::Chain(..) => lines[at..at + gap].iter().all(Line::is_elision),
        Row::Entry(_) => false,
    };
    let marked = gap <= MAX_ELISION && lines[at..at + gap].iter().any(Line::is_elision);
    (marked && goes_on && !open.is_empty()).then_some(at + gap)
}

/// Returns whether a branch without a share begins another tree.
fn is_second(tree: &Tree, open: &[Open], branch: &Branch) -> bool {
    let outer = open.first().is_none_or(|first| branch.mark <= first.mark);
    branch.form == Form::Root && !tree.nodes.is_empty() && outer
}

impl Tree {
    /// A tree without a row has at least two shares.
    fn is_tree(&self) -> bool {
        let shares = self.nodes.iter().filter(|node| node.percent.is_some()).count();
        shares >= 2 || shares == 1 && self.nodes.len() >= 3 && self.has_branches
    }

    fn branch(&mut self, open: &mut Vec<Open>, branch: Branch, line: usize) {
        self.old |= branch.form == Form::Old;
        self.has_branches |= branch.form != Form::Screen;
        let screen = branch.form == Form::Screen;
        let percent = branch.percent.is_some();
        // Numbers of a list end in one column, so that they begin in two.
        let is_row = |last: &Open| {
            screen && last.screen && percent && last.percent && last.column == branch.column
        };
        let ends = |last: &mut Open| match percent || !screen {
            true => last.mark >= branch.mark || is_row(last),
            false => last.mark > branch.mark || last.mark == branch.mark && last.percent,
        };
        while open.pop_if(ends).is_some() {}
        let parent = open.last().map(|last| last.node);
        let Branch { mark, column, percent: share, name, .. } = branch;
        open.push(Open { bars: 0, mark, column, node: self.nodes.len(), percent, screen });
        self.nodes.push(Node { name, percent: share, parent, mark, line });
    }

    /// Adds a function below the innermost one with as many bars: a function without a bar has no
    /// branch after it, so that all others with its number of bars are its callees.
    fn below_bars(&mut self, open: &mut Vec<Open>, name: &str, percent: Option<f64>, line: &Line) {
        let (before, own) = bars(&line.text);
        while open.pop_if(|last| last.bars > before).is_some() {}
        let parent = open.last().map(|last| last.node);
        let bars = before + usize::from(own);
        self.has_branches |= percent.is_some();
        let (mark, column, node, screen) = (0, 0, self.nodes.len(), false);
        open.push(Open { bars, mark, column, node, percent: percent.is_some(), screen });
        let (name, line) = (name.to_owned(), line.number);
        self.nodes.push(Node { name, percent, parent, mark, line });
    }

    /// Adds a function to a chain. Returns `false` if it is in no column of an open branch.
    fn chain(&mut self, open: &mut Vec<Open>, column: usize, name: String, line: &Line) -> bool {
        let least = open.first().map_or(0, |first| first.column.min(first.mark + 2));
        if column + SLACK < least {
            return false;
        }
        if open.last().is_some_and(|last| last.screen) {
            // On the screen the functions of a chain are a level to the right of the first.
            let mark = column.saturating_sub(2);
            let branch = Branch { mark, column, percent: None, name, form: Form::Screen };
            self.branch(open, branch, line.number);
            return true;
        }
        while open.len() > 1 && open.last().is_some_and(|last| last.column > column + SLACK) {
            open.pop();
        }
        let Some(last) = open.last_mut() else { return false };
        let parent = Some(last.node);
        last.node = self.nodes.len();
        self.nodes.push(Node { name, percent: None, parent, mark: column, line: line.number });
        true
    }

    /// Returns the sum of the shares below each function, and of those below none, with their
    /// numbers.
    fn sums(&self) -> (Vec<Sum>, Sum) {
        let (mut sums, mut first) = (vec![Sum::default(); self.nodes.len()], Sum::default());
        for node in &self.nodes {
            let Some(percent) = node.percent else { continue };
            let sum = match self.above(node) {
                Some(above) => &mut sums[above],
                None => &mut first,
            };
            (sum.percent, sum.count) = (sum.percent + percent, sum.count + 1);
        }
        (sums, first)
    }

    /// Returns whether the shares of callees are of the samples of their caller, as far as the
    /// tree shows it.
    fn is_relative(&self) -> bool {
        let whole = self.entry.as_ref().map(|entry| entry.percent);
        let (sums, first) = self.sums();
        let mut inner = self.nodes.iter().zip(&sums);
        inner.any(|(node, sum)| node.percent.is_some_and(|own| sum.is_of_caller(own)))
            || whole.is_some_and(|own| first.is_of_caller(own))
    }

    /// Returns whether callees have more than all samples of their caller.
    fn exceeds(&self) -> bool {
        let (sums, first) = self.sums();
        sums.iter().chain([&first]).any(|sum| sum.exceeds(100.0))
    }

    /// Returns the nearest function above that has a share.
    fn above(&self, node: &Node) -> Option<usize> {
        let mut next = node.parent;
        while let Some(at) = next {
            if self.nodes[at].percent.is_some() {
                return Some(at);
            }
            next = self.nodes[at].parent;
        }
        None
    }

    /// Returns the share of each function.
    fn shares(&self, relative: bool) -> Vec<f64> {
        let roots: f64 = self
            .nodes
            .iter()
            .filter(|node| self.above(node).is_none())
            .filter_map(|node| node.percent)
            .sum();
        // Without a row the tree is all there is.
        let whole = match (&self.entry, relative) {
            (Some(entry), _) => entry.percent,
            (None, true) => 100.0,
            (None, false) => roots,
        };
        let (sums, first) = self.sums();
        let mut shares: Vec<f64> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let above = node.parent.map_or(whole / 100.0, |parent| shares[parent]);
            shares.push(match node.percent {
                Some(percent) if relative => {
                    let all = self.above(node).map_or(first, |above| sums[above]);
                    let all = if all.exceeds(100.0) { all.percent } else { 100.0 };
                    above * percent / all
                }
                Some(percent) => percent / 100.0,
                None => above,
            });
        }
        shares
    }

    /// Returns the stacks of the tree with their shares, or without if its structure is lost.
    fn stacks(&self, relative: bool) -> Vec<Stack> {
        let mut stacks = self.weighed(relative);
        if self.torn.is_some() {
            stacks.iter_mut().for_each(|stack| (stack.weight, stack.unit) = (None, Unit::None));
        } else if self.is_part(relative) {
            stacks.iter_mut().for_each(|stack| stack.unit = Unit::Part);
        }
        stacks
    }

    /// Returns whether its shares are of the samples of a caller that the text does not have.
    fn is_part(&self, relative: bool) -> bool {
        relative && self.entry.is_none()
    }

    /// Returns the outermost branches whose shares are of one caller: those furthest to the left.
    /// Of others, the caller is before the first line.
    fn is_of_one_caller(&self, at: usize) -> bool {
        let root = |mut at: usize| {
            while let Some(parent) = self.nodes[at].parent {
                at = parent;
            }
            self.nodes[at].mark
        };
        let least = self.nodes.iter().filter(|node| node.parent.is_none()).map(|node| node.mark);
        least.min().is_none_or(|least| root(at) <= least + LEFT)
    }

    fn weighed(&self, relative: bool) -> Vec<Stack> {
        let shares = self.shares(relative);
        let mut own = shares.clone();
        for (at, node) in self.nodes.iter().enumerate() {
            if let Some(parent) = node.parent.filter(|_| node.name != ITSELF) {
                own[parent] -= shares[at];
            }
        }
        // Shares of the caller are rounded as those of all samples are.
        let whole = self.entry.as_ref().map_or(100.0, |entry| entry.percent);
        let least = if relative { LEAST * whole / 100.0 } else { LEAST };
        let paths: Vec<Vec<&str>> = (0..self.nodes.len()).map(|at| self.path(at)).collect();
        // A row with callees begins the paths of callers, and those of callees.
        let sampled = self.entry.as_ref().filter(|entry| entry.is_leaf());
        let sampled = sampled.map(|entry| entry.name.as_str());
        let votes = order::votes(sampled, &self.leaves(&paths));
        let innermost_first = votes > 0;
        let of_lock = sampled.filter(|name| is_acquiring(name) && !self.nodes.is_empty());
        // The tree may begin with the callers of the row's function.
        let leaf =
            of_lock.filter(|name| votes >= 0 && paths.iter().all(|path| !path.contains(name)));
        // A path of callers that ends before it was collapsed: which function of it takes the lock
        // is not known.
        let hidden = of_lock.filter(|_| !innermost_first && leaf.is_none());
        let mut unknown = 0.0;
        let mut spinning = vec![0.0; self.nodes.len()];
        for (at, node) in self.nodes.iter().enumerate().filter(|(_, n)| is_acquiring(&n.name)) {
            if let Some(parent) = node.parent {
                spinning[parent] += shares[at];
            }
        }
        let mut stacks = vec![];
        for (at, node) in self.nodes.iter().enumerate() {
            let is_own = !self.is_part(relative) || self.is_of_one_caller(at);
            if node.name == ITSELF || own[at] < least || !is_own {
                continue;
            }
            if hidden.is_some() && !paths[at].iter().any(|name| is_acquiring(name)) {
                unknown += own[at];
                continue;
            }
            // The function that spins has the wait, and those that called it the attempt.
            let is_slow = node.name.contains("slow") || order::is_spinning(&node.name);
            if !innermost_first && !is_slow && own[at] < spinning[at] {
                continue;
            }
            let mut path: Vec<String> = paths[at].iter().map(|&name| name.to_owned()).collect();
            path.retain(|name| !name.is_empty());
            if innermost_first {
                path.reverse();
            }
            path.extend(leaf.map(str::to_owned));
            let weight = Some(own[at]);
            stacks.push(Stack { path, weight, unit: Unit::Share, line: node.line, who: None });
        }
        if let (Some(leaf), Some(entry)) = (leaf.or(hidden), &self.entry) {
            let roots = self.nodes.iter().zip(&shares).filter(|(node, _)| node.parent.is_none());
            let rest = entry.percent / 100.0 - roots.map(|(_, share)| share).sum::<f64>() + unknown;
            if rest >= LEAST {
                let (path, weight) = (vec![leaf.to_owned()], Some(rest));
                stacks.push(Stack { path, weight, unit: Unit::Share, line: self.line, who: None });
            }
        }
        stacks
    }

    /// Returns the names from the first function of the tree to a function.
    fn path(&self, at: usize) -> Vec<&str> {
        let mut path = vec![self.nodes[at].name.as_str()];
        let mut next = self.nodes[at].parent;
        while let Some(parent) = next {
            path.push(&self.nodes[parent].name);
            next = self.nodes[parent].parent;
        }
        path.reverse();
        path
    }

    fn leaves<'a>(&self, paths: &[Vec<&'a str>]) -> Vec<Vec<&'a str>> {
        let mut inner = vec![false; self.nodes.len()];
        self.nodes.iter().filter_map(|node| node.parent).for_each(|parent| inner[parent] = true);
        let leaves = paths.iter().zip(inner).filter(|(_, inner)| !inner);
        leaves.map(|(path, _)| path.clone()).collect()
    }

    /// Returns a name that is equal in two profiles.
    fn key(&self) -> String {
        match &self.entry {
            Some(entry) => entry.key.clone(),
            None => self.nodes.first().map_or(String::new(), |node| node.name.clone()),
        }
    }

    /// Returns the contents: equal for a mail and its quote.
    fn contents(&self) -> String {
        let nodes: Vec<_> = self.nodes.iter().map(|node| (&node.name, node.percent)).collect();
        format!("{:?}", (&self.entry, nodes))
    }
}

/// The stacks and functions of the trees of a file.
#[derive(Default)]
pub(crate) struct Profile {
    /// The stacks, with shares of all samples.
    pub(crate) stacks: Vec<Stack>,
    /// Rows without a tree: functions, with the share of the samples in them.
    pub(crate) flat: Vec<(String, f64)>,
    /// Remarks.
    pub(crate) notes: Vec<String>,
    /// The stacks of further profiles with the same functions, such as those after a change, with
    /// the lines at which they begin.
    pub(crate) others: Vec<(usize, Vec<Stack>)>,
}

/// Returns the rows without a tree, each with its share, and the line of another table with the
/// same functions, which is left out. The rows of a table are sorted, so that a larger share begins
/// the next table.
fn flat(trees: &[Tree]) -> (Vec<(String, f64)>, Option<usize>) {
    let mut tables: Vec<Vec<(&Tree, &Entry)>> = vec![];
    let mut last = f64::NEG_INFINITY;
    for tree in trees {
        let Some(entry) = &tree.entry else { continue };
        if entry.percent > last || tree.begins {
            tables.push(vec![]);
        }
        last = entry.percent;
        if let Some(table) = tables.last_mut().filter(|_| tree.nodes.is_empty()) {
            table.push((tree, entry));
        }
    }
    let (mut known, mut rows, mut other) = (BTreeSet::new(), vec![], None);
    for table in tables {
        let keys: BTreeSet<&str> = table.iter().map(|(_, entry)| entry.key.as_str()).collect();
        let begins = table.first().is_some_and(|(tree, _)| tree.begins) && !known.is_empty();
        if !known.is_disjoint(&keys) || begins {
            other = other.or(table.first().map(|(tree, _)| tree.line));
            continue;
        }
        known.extend(keys);
        let share = |entry: &Entry| entry.own.unwrap_or(entry.percent) / 100.0;
        rows.extend(table.iter().map(|(_, entry)| (entry.name.clone(), share(entry))));
    }
    (rows, other)
}

/// Removes trees that lost the rows to which their shares belong, if other trees have rows.
fn without_orphans(kept: &mut Vec<Tree>) -> Option<String> {
    let is_row = |tree: &Tree| tree.entry.is_some() && !tree.nodes.is_empty();
    if !kept.iter().any(is_row) {
        return None;
    }
    let orphan = |tree: &Tree| tree.entry.is_none();
    let line = kept.iter().find(|tree| orphan(tree))?.line;
    kept.retain(|tree| !orphan(tree));
    Some(format!("line {line}: shares of a caller that the text does not have: not counted"))
}

/// Leaves the rows whose samples are in no other row, if rows are with their callees. Returns a
/// note if a further row of the same function is left out.
fn without_callees(all: &mut Vec<(&Tree, Vec<Stack>)>) -> Option<String> {
    let waits = |stacks: &[Stack]| stacks.iter().any(Stack::is_wait);
    let with_callees = |tree: &Tree| tree.entry.as_ref().is_some_and(|e| e.own.is_some());
    if all.iter().any(|(tree, _)| with_callees(tree)) {
        // Rows with callees have the samples of other rows, too.
        let inner = |tree: &Tree| {
            tree.entry.as_ref().is_none_or(|entry| is_acquiring(&entry.name) && entry.is_leaf())
        };
        let any = all.iter().any(|(tree, stacks)| inner(tree) && waits(stacks));
        if any {
            all.retain(|(tree, _)| inner(tree));
        } else {
            let share = |tree: &Tree| tree.entry.as_ref().map_or(0.0, |entry| entry.percent);
            let best = all.iter().filter(|(_, stacks)| waits(stacks));
            let best = best.map(|(tree, _)| share(tree)).fold(0.0, f64::max);
            let at = all.iter().position(|(tree, stacks)| waits(stacks) && share(tree) >= best)?;
            let kept = all.swap_remove(at);
            let name = |tree: &Tree| tree.entry.as_ref().map(|entry| entry.name.clone());
            let own = name(kept.0);
            let again = all.iter().find(|(tree, stacks)| waits(stacks) && name(tree) == own);
            let note = again.map(|(tree, _)| {
                let name = own.unwrap_or_default();
                format!("line {}: a further row of {name}, which is not counted", tree.line)
            });
            *all = vec![kept];
            return note;
        }
    }
    None
}

/// The most profiles of a file that are read.
const MOST_PROFILES: usize = 8;

/// Divides the trees of a file into profiles: another one begins where the text before a tree says
/// so, and where a function has a second row.
fn profiles(trees: Vec<Tree>) -> Vec<Vec<Tree>> {
    let has_tree = |trees: &[Tree]| trees.iter().any(|tree| !tree.nodes.is_empty());
    let mut parts: Vec<Vec<Tree>> = vec![];
    for tree in trees {
        match parts.last_mut() {
            Some(part) if !tree.begins => part.push(tree),
            _ => parts.push(vec![tree]),
        }
    }
    // Rows without callers are of the profile before or after them.
    let mut whole: Vec<Vec<Tree>> = vec![];
    for part in parts {
        match whole.last_mut().filter(|last| !has_tree(last) || !has_tree(&part)) {
            Some(last) => last.extend(part),
            None => whole.push(part),
        }
    }
    let mut seen = BTreeSet::new();
    let all = whole.into_iter().flat_map(|part| by_rows(part, &mut seen));
    all.filter(|trees| !trees.is_empty()).take(MOST_PROFILES).collect()
}

/// Divides trees where a function has a second row.
fn by_rows(trees: Vec<Tree>, seen: &mut BTreeSet<String>) -> Vec<Vec<Tree>> {
    let mut all: Vec<Vec<Tree>> = vec![];
    let mut keys = BTreeSet::new();
    let (mut kept, mut rest) = (vec![], trees.into_iter());
    while let Some(tree) = rest.find(|tree| seen.insert(tree.contents())) {
        if tree.nodes.is_empty() || keys.insert(tree.key()) {
            kept.push(tree);
            continue;
        }
        // Rows are sorted, so that the other profile begins with its largest row.
        let share = |tree: &Tree| tree.entry.as_ref().map_or(0.0, |entry| entry.percent);
        let (mut start, mut least) = (kept.len(), share(&tree));
        while start > 0 && share(&kept[start - 1]) >= least {
            start -= 1;
            least = share(&kept[start]);
        }
        let mut other = kept.split_off(if start == 0 { kept.len() } else { start });
        other.push(tree);
        all.push(std::mem::replace(&mut kept, other));
        if all.len() == MOST_PROFILES {
            return all;
        }
        keys = kept.iter().filter(|tree| !tree.nodes.is_empty()).map(Tree::key).collect();
    }
    all.push(kept);
    all
}

/// Beginnings of lines that perf prints before the rows of a profile.
const HEADINGS: [&str; 7] =
    ["# Samples:", "Samples:", "# Overhead", "Overhead ", "# Children", "Children ", "PerfTop:"];

/// Finds the trees before which the text begins another profile: with the headings of one, with a
/// caption that is a side of a comparison, or with any words if the share of the row is larger than
/// that of the row before, because rows are sorted.
fn find_beginnings(trees: &mut [(usize, Tree)], lines: &[Line]) {
    let mut last = f64::INFINITY;
    let mut end = None;
    for (start, tree) in trees {
        let percent = tree.entry.as_ref().map(|entry| entry.percent);
        let between = end.map_or(&lines[..0], |end: usize| &lines[end.min(*start)..*start]);
        // What is left of a tree with a name that is not read has bars or functions only.
        let is_word = |line: &&Line| {
            let text = line.text.trim();
            let is_name = !text.contains(' ') && !text.ends_with(':');
            !line.is_blank() && !line.is_elision() && !text.contains('|') && !is_name
        };
        let words = || between.iter().filter(is_word);
        let is_heading = |line: &Line| {
            let text = line.text.trim();
            HEADINGS.iter().any(|heading| text.starts_with(heading))
        };
        let is_caption =
            |line: &Line| side(line.text.trim().trim_start_matches(['-', '=', '#', ' '])).is_some();
        tree.begins = words().any(|line| is_heading(line) || is_caption(line))
            || percent.is_some_and(|percent| percent > last) && words().next().is_some();
        last = percent.unwrap_or(last);
        end = Some(tree.end);
    }
}

/// Returns the stacks of the trees of a file, which begin at indices of lines, each sample once.
/// Those of further profiles are apart.
pub(crate) fn chosen(mut trees: Vec<(usize, Tree)>, lines: &[Line]) -> Profile {
    find_beginnings(&mut trees, lines);
    let trees: Vec<Tree> = trees.into_iter().map(|(_, tree)| tree).collect();
    let mut all = profiles(trees).into_iter();
    let mut profile = all.next().map(of_one).unwrap_or_default();
    for (nth, trees) in all.enumerate() {
        let line = trees[0].line;
        if nth == 0 {
            let what = format!("line {line} begins another profile: only the first is counted");
            profile.notes.insert(0, what);
        }
        profile.others.push((line, of_one(trees).stacks));
    }
    profile
}

/// Returns the stacks of the trees of a profile.
fn of_one(mut kept: Vec<Tree>) -> Profile {
    let mut profile = Profile::default();
    let whole = || kept.iter().filter(|tree| tree.torn.is_none());
    let relative = whole().any(Tree::is_relative) || kept.iter().any(|tree| tree.old);
    profile.notes.extend(kept.iter().find_map(|tree| tree.torn).map(|line| {
        format!(
            "line {line}: a mail program broke this tree, so that its shares are not known: its \
             call paths count without them"
        )
    }));
    if relative {
        profile.notes.extend(without_orphans(&mut kept));
        let part = kept.iter().find(|tree| tree.is_part(relative) && tree.torn.is_none());
        profile.notes.extend(part.map(|tree| {
            format!(
                "line {}: shares of a caller that the text does not have, so that the part of all \
                 samples is not known: give the row above, too",
                tree.line
            )
        }));
        let scaled = kept.iter().find(|tree| tree.exceeds());
        profile.notes.extend(scaled.map(|tree| {
            format!("line {}: callees have more than 100 % of a caller: scaled to 100 %", tree.line)
        }));
    }
    let (flat, other) = flat(&kept);
    profile.flat = flat;
    profile.notes.extend(other.map(|line| {
        format!("line {line} begins another table of functions: only the first is counted")
    }));
    kept.retain(|tree| !tree.nodes.is_empty());
    let mut all: Vec<(&Tree, Vec<Stack>)> =
        kept.iter().map(|tree| (tree, tree.stacks(relative))).collect();
    profile.notes.extend(without_callees(&mut all));
    let is_list = |tree: &Tree, stacks: &[Stack]| {
        tree.entry.is_none() && !tree.has_branches && stacks.iter().all(|s| s.path.len() == 1)
    };
    for (tree, stacks) in all {
        let spins =
            stacks.iter().any(|stack| stack.path.iter().any(|name| name.contains("spin_lock")));
        if is_list(tree, &stacks) && spins {
            let known = |stack: &Stack| {
                let name = stack.path.last();
                name.is_some_and(|name| profile.flat.iter().any(|(known, _)| known == name))
            };
            if stacks.iter().any(known) {
                profile.notes.push(format!(
                    "line {} begins another table of functions: only the first is counted",
                    tree.line
                ));
                continue;
            }
            let flat = stacks.into_iter().filter_map(|s| Some((s.path.last()?.clone(), s.weight?)));
            profile.flat.extend(flat);
        } else {
            profile.stacks.extend(stacks);
        }
    }
    profile
}

#[cfg(test)]
mod tests;
