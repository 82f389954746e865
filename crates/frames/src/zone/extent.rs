//! The frames of a zone: a span of memory without its holes.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

/// A range of frame numbers, and the holes in it, whose frames do not exist or are reserved.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Extent {
    span: Range<usize>,
    /// Sorted, not empty, inside the span, and apart from one another.
    holes: Box<[Range<usize>]>,
    present: u32,
}

impl Extent {
    /// A span with the parts of `holes` that are in it. These may overlap, in any order.
    pub(crate) fn new(span: Range<usize>, holes: &[Range<usize>]) -> Self {
        let inside = |hole: &Range<usize>| hole.start.max(span.start)..hole.end.min(span.end);
        let mut sorted: Vec<Range<usize>> = holes.iter().map(inside).collect();
        sorted.retain(|hole| !hole.is_empty());
        sorted.sort_unstable_by_key(|hole| hole.start);
        let mut apart: Vec<Range<usize>> = Vec::new();
        for hole in sorted {
            match apart.last_mut() {
                Some(last) if hole.start <= last.end => last.end = last.end.max(hole.end),
                _ => apart.push(hole),
            }
        }
        let missing: usize = apart.iter().map(|hole| hole.len()).sum();
        Self { present: (span.len() - missing) as u32, holes: apart.into(), span }
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

    #[test]
    fn frames_are_counted_without_holes() {
        let extent = Extent::new(10..100, &[0..12, 40..50, 45..60, 60..61, 98..120, 70..70]);
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
        assert_eq!(Extent::new(3..9, &[]).present(), 6);
    }
}
