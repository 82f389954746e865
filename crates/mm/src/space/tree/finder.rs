//! Reading the tree while it changes.

use super::node::MAX_HEIGHT;
use super::{Shared, TreeWord};
use crate::space::Vpn;
use alloc::sync::Arc;
use core::marker::PhantomData;
use core::sync::atomic::Ordering::Relaxed;

const HEIGHT_BITS: u32 = 8;

/// Root and height as one word, so that a reader sees a consistent pair.
#[inline]
pub(super) fn root_word(root: u32, height: usize) -> u64 {
    u64::from(root) << HEIGHT_BITS | height as u64
}

/// Finds VMAs without mmap_lock.
///
/// While the tree is not being changed, the result is that of [`super::VmaTree::get`]. During a
/// change it is a hint: it may be missing, outdated, or a word that is no value. The search ends
/// after at most as many steps as a tree can have levels, and reads only nodes. All loads are
/// `Relaxed`: the caller orders them, see the table in `space::vma::lock`.
///
/// It charges nothing to the machine: the caller charges the lookup and touches the cache lines.
pub struct VmaFinder<V> {
    shared: Arc<Shared>,
    values: PhantomData<fn() -> V>,
}

impl<V> Clone for VmaFinder<V> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), values: PhantomData }
    }
}

impl<V: TreeWord> VmaFinder<V> {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, values: PhantomData }
    }
    /// The value of the VMA that holds `page`, as a hint. O(log n).
    #[inline]
    pub fn find(&self, page: Vpn) -> Option<V> {
        let word = self.shared.root.load(Relaxed);
        let height = (word as usize & ((1 << HEIGHT_BITS) - 1)).min(MAX_HEIGHT);
        if height == 0 {
            return None;
        }
        let mut node = self.shared.nodes.get((word >> HEIGHT_BITS) as u32)?;
        for level in (0..height).rev() {
            node.fetch_starts();
            let at = node.first_ending_after(page.get());
            if node.start(at) > page.get() {
                return None;
            }
            if level == 0 {
                return Some(V::from_word(node.word(at)));
            }
            node = self.shared.nodes.get(node.child(at))?;
        }
        None
    }
}
