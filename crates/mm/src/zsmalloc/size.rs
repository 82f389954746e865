//! Size classes: which sizes share zspages, and how many pages a zspage has.

/// Sizes of objects are counted in 256ths of a page (`ZS_SIZE_CLASS_DELTA`): 16 bytes of 4 KiB.
pub(crate) const GRAINS: usize = 256;
/// The smallest object, in 256ths of a page.
const SMALLEST: usize = 2;
/// The most pages of a zspage (`CONFIG_ZSMALLOC_CHAIN_SIZE`).
pub(super) const CHAIN: usize = 8;
/// The most objects of a zspage: seven pages of seven 256ths each.
pub(super) const OBJECTS: usize = 256;

/// The shape of a class's zspages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shape {
    /// The size of an object, in 256ths of a page.
    pub(super) grains: usize,
    /// Pages of a zspage.
    pub(super) pages: usize,
    /// Objects of a zspage.
    pub(super) objects: usize,
}

impl Shape {
    /// Returns the shape for objects of `grains`: of the numbers of pages that leave the least room
    /// unused the smallest (`calculate_zspage_chain_size`).
    fn of(grains: usize) -> Self {
        let pages = (1..=CHAIN).min_by_key(|pages| pages * GRAINS % grains).unwrap_or(1);
        Self { grains, pages, objects: pages * GRAINS / grains }
    }
    /// Returns whether both have as many objects in as many pages, so that the larger serves both.
    fn is_like(self, other: Self) -> bool {
        (self.pages, self.objects) == (other.pages, other.objects)
    }
}

/// Returns the shapes of all classes, smallest objects first. Sizes whose zspages would have
/// equally many objects in equally many pages are one class, of the largest of them (`can_merge`).
pub(super) fn shapes() -> impl Iterator<Item = Shape> {
    (SMALLEST..=GRAINS)
        .map(Shape::of)
        .filter(|shape| shape.grains == GRAINS || !shape.is_like(Shape::of(shape.grains + 1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn zspages_have_room_for_their_objects() {
        for shape in shapes() {
            let Shape { grains, pages, objects } = shape;
            assert!((1..=CHAIN).contains(&pages) && (1..=OBJECTS).contains(&objects), "{shape:?}");
            let rest = pages * GRAINS - objects * grains;
            assert!(rest < grains, "{shape:?}: room for one more");
        }
    }

    /// With chains of up to eight pages, 3072 bytes are four objects in three pages, and above 3632
    /// bytes an object has a page of its own (Linux, Documentation/mm/zsmalloc.rst).
    #[test]
    fn shapes_are_those_of_linux() {
        let all: Vec<Shape> = shapes().collect();
        let of = |bytes: usize| {
            *all.iter().find(|shape| shape.grains * 16 >= bytes).expect("there is one")
        };
        assert_eq!((of(3072).pages, of(3072).objects), (3, 4));
        assert_eq!((of(2048).pages, of(2048).objects), (1, 2));
        assert_eq!((of(1632).pages, of(1632).objects), (2, 5));
        assert_eq!((of(3632).pages, of(3632).objects), (8, 9));
        assert_eq!(of(3633), Shape { grains: GRAINS, pages: 1, objects: 1 });
        assert!(all.is_sorted_by_key(|shape| shape.grains));
        assert!((90..160).contains(&all.len()), "{} classes", all.len());
    }
}
