//! The frames of a zone: a span of memory without its holes.

use crate::place::{Place, SharedTable};
use core::ops::Range;

/// The number of frames of a span that are in none of `holes`, which may overlap.
pub(crate) fn present_in(span: &Range<usize>, holes: &[Range<usize>]) -> u32 {
    let apart = Holes { span: span.clone(), holes };
    (span.len() - apart.map(|hole| hole.len()).sum::<usize>()) as u32
}

/// The parts of `holes` that are in a span: in order, apart from one another, and not empty. Needs
/// no memory, so it searches all holes for each of them.
#[derive(Clone)]
struct Holes<'a> {
    /// The rest of it, without the holes so far.
    span: Range<usize>,
    holes: &'a [Range<usize>],
}

impl Iterator for Holes<'_> {
    type Item = Range<usize>;
    fn next(&mut self) -> Option<Range<usize>> {
        let from = self.span.start;
        let ahead = self.holes.iter().filter(|hole| !hole.is_empty() && hole.end > from);
        let start = ahead.map(|hole| hole.start.max(from)).min()?;
        if start >= self.span.end {
            return None;
        }
        let reached = |end: usize| {
            let longer = self.holes.iter().filter(|hole| hole.start <= end && hole.end > end);
            longer.map(|hole| hole.end).max()
        };
        let mut end = start;
        while let Some(longer) = reached(end) {
            end = longer;
        }
        self.span.start = end.min(self.span.end);
        Some(start..self.span.start)
    }
}

/// A range of frame numbers, and the holes in it, whose frames do not exist or are reserved.
#[derive(Clone)]
pub(crate) struct Extent {
    span: Range<usize>,
    /// Sorted, not empty, inside the span, and apart from one another.
    holes: SharedTable<Range<usize>>,
    present: u32,
}

impl Extent {
    /// A span with the parts of `holes` that are in it. These may overlap, in any order.
    pub(crate) fn new(place: &mut Place, span: Range<usize>, holes: &[Range<usize>]) -> Self {
        let mut apart = Holes { span: span.clone(), holes };
        let present = present_in(&span, holes);
        let count = apart.clone().count();
        let holes = place.table(count, |_| apart.next().expect("there are so many holes"));
        Self { present, holes: holes.shared(), span }
    }
    /// From the first frame to the last, holes included.
    #[inline]
    pub(crate) fn span(&self) -> Range<usize> {
        self.span.clone()
    }
    /// The number of frames, without those in holes.
    #[inline]
    pub(crate) fn present(&self) -> u32 {
        self.present
    }
    /// The first hole that does not end at `frame` or before.
    fn next_hole(&self, frame: usize) -> Option<&Range<usize>> {
        self.holes.get(self.holes.partition_point(|hole| hole.end <= frame))
    }
    /// The end of the hole that has `frame`.
    pub(crate) fn hole_end(&self, frame: usize) -> Option<usize> {
        self.next_hole(frame).filter(|hole| hole.start <= frame).map(|hole| hole.end)
    }
    /// Whether `frame` is in the span, and in no hole.
    pub(crate) fn has(&self, frame: usize) -> bool {
        self.span.contains(&frame) && self.hole_end(frame).is_none()
    }
    /// The first frame of a range that is outside of the span or in a hole.
    pub(crate) fn first_missing(&self, range: Range<usize>) -> Option<usize> {
        let hole = self.next_hole(range.start).map_or(self.span.end, |hole| hole.start);
        let before = range.start < self.span.start;
        let first = if before { range.start } else { hole.max(range.start) };
        (first < range.end).then_some(first)
    }
    /// The number of frames of a range that are in the span and in no hole.
    pub(crate) fn present_in(&self, range: Range<usize>) -> usize {
        let stretches = self.stretches().skip_while(|stretch| stretch.end <= range.start);
        let inside = stretches.take_while(|stretch| stretch.start < range.end);
        inside.map(|part| part.end.min(range.end) - part.start.max(range.start)).sum()
    }
    /// The stretches between holes, which may be empty at the ends of the span.
    pub(crate) fn stretches(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        let starts = [self.span.start].into_iter().chain(self.holes.iter().map(|hole| hole.end));
        let ends = self.holes.iter().map(|hole| hole.start).chain([self.span.end]);
        starts.zip(ends).map(|(start, end)| start..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::placed;
    use alloc::vec::Vec;

    #[test]
    fn frames_are_counted_without_holes() {
        let holes = [98..120, 0..12, 40..50, 70..70, 45..60, 60..61, 46..47];
        let extent = placed(|place| Extent::new(place, 10..100, &holes));
        assert_eq!(extent.stretches().collect::<Vec<_>>(), [10..10, 12..40, 61..98, 100..100]);
        assert_eq!(extent.present(), 28 + 37);
        let has: Vec<usize> = (0..130).filter(|&frame| extent.has(frame)).collect();
        assert_eq!(has, (12..40).chain(61..98).collect::<Vec<_>>());
        for range in (5..110).flat_map(|from| (from..115).map(move |to| from..to)) {
            let present = range.clone().filter(|&frame| extent.has(frame)).count();
            assert_eq!(extent.present_in(range.clone()), present, "{range:?}");
            let missing = range.clone().find(|&frame| !extent.has(frame));
            assert_eq!(extent.first_missing(range.clone()), missing, "{range:?}");
        }
        assert_eq!((extent.hole_end(45), extent.hole_end(61)), (Some(61), None));
        assert_eq!(present_in(&(3..9), &[]), 6);
    }
}
