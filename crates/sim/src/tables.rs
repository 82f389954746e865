//! Words of frames that are page tables, or hold other data of the memory manager.
//!
//! Host memory is allocated 64 words at a time, and freed when the frame is cleared or dropped.
//!
//! The holder of a table's lock stores without waiting for its turn. Other CPUs may read the same
//! words without the lock, at their turns. A store therefore records the word that it overwrites,
//! and such a reader finds the word as of its own time even if the holder has run ahead on the
//! host. At most one CPU can be ahead with stores to a word: another CPU would have obtained the
//! lock at a turn of its own, when everything that the first did under it was in the past.
//!
//! The last walk through upper tables is cached with its root until a word of one of them changes.
//! Walks are most of what a page fault does here, and upper tables rarely change.

use crate::topology::NO_CPU;
use mmscale_arch::{Order, Pfn, Walked};

/// Words in a frame.
const WORDS: usize = 512;
/// Words in a chunk of host memory.
const CHUNK: usize = 64;
/// Frames that are searched together when a block is cleared.
const GROUP: usize = 64;
/// The levels of tables above the lowest.
pub(crate) const UPPER: usize = 3;
/// The index that stands for none: its entry is never written.
const NONE: u32 = 0;

/// The words of one frame, on a cache line of the host.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Frame {
    /// The indices of its chunks; [`NONE`] where all words are 0.
    chunks: [u32; WORDS / CHUNK],
    /// The last CPU that stored without a turn, plus 1.
    ahead: u16,
    /// The root whose cached walk passes this table; [`NONE`] if there is none.
    root: u32,
    /// Of a root: the cached walk, plus 1; 0 if there is none.
    path: u32,
    /// The last table of that walk, and its entry.
    table: u32,
    entry: u64,
}

const _: () = assert!(size_of::<Frame>() == 64);

impl Frame {
    const EMPTY: Self =
        Self { chunks: [NONE; 8], ahead: 0, root: NONE, path: 0, table: 0, entry: 0 };
}

/// A store of a CPU that was ahead of its turn.
struct Stored {
    frame: u32,
    word: u16,
    /// When, in ps.
    time_ps: u64,
    before: u64,
}

/// All words.
pub(crate) struct Tables {
    /// The index of each frame in `frames`. Uses host memory only where frames have words: a vector
    /// of zeros comes from the host as untouched pages.
    places: Vec<u32>,
    /// The frames of a group that have an index, by bit.
    kept: Vec<u64>,
    frames: Vec<Frame>,
    chunks: Vec<[u64; CHUNK]>,
    /// Free indices of `frames` and of `chunks`.
    free_frames: Vec<u32>,
    free_chunks: Vec<u32>,
    /// By CPU, the stores that other CPUs may not have seen yet, and some older ones.
    stores: Vec<Vec<Stored>>,
}

/// Encodes a walk down the upper levels as a number; `None` for other paths.
#[inline]
fn number_of(path: &[usize]) -> Option<u32> {
    match *path {
        [first, second, third] | [first, second, third, _] => {
            Some((first * WORDS * WORDS + second * WORDS + third) as u32 + 1)
        }
        _ => None,
    }
}

impl Tables {
    /// Makes the tables of `cpus` CPUs and `frames` frames.
    pub(crate) fn new(cpus: usize, frames: usize) -> Self {
        Self {
            places: vec![NONE; frames],
            kept: vec![0; frames.div_ceil(GROUP)],
            frames: vec![Frame::EMPTY],
            chunks: vec![[0; CHUNK]],
            free_frames: Vec::new(),
            free_chunks: Vec::new(),
            stores: (0..cpus).map(|_| Vec::new()).collect(),
        }
    }
    #[inline]
    fn frame(&self, pfn: Pfn) -> &Frame {
        let place = self.places.get(pfn.index()).copied().unwrap_or(NONE);
        &self.frames[place as usize]
    }
    /// Returns the index of a frame, which is assigned one if it has none.
    #[inline]
    fn place(&mut self, pfn: Pfn) -> usize {
        match self.places.get(pfn.index()) {
            Some(&place) if place != NONE => place as usize,
            _ => self.make_place(pfn.index()),
        }
    }
    #[cold]
    fn make_place(&mut self, index: usize) -> usize {
        if index >= self.places.len() {
            self.places.resize(index + 1, NONE);
            self.kept.resize(index / GROUP + 1, 0);
        }
        let place = self.free_frames.pop().unwrap_or_else(|| {
            self.frames.push(Frame::EMPTY);
            self.frames.len() as u32 - 1
        });
        self.places[index] = place;
        self.kept[index / GROUP] |= 1 << (index % GROUP);
        place as usize
    }
    /// Returns a word of the frame at an index.
    #[inline]
    fn word_mut(&mut self, place: usize, word: usize) -> &mut u64 {
        let mut chunk = self.frames[place].chunks[word / CHUNK];
        if chunk == NONE {
            chunk = self.make_chunk();
            self.frames[place].chunks[word / CHUNK] = chunk;
        }
        &mut self.chunks[chunk as usize][word % CHUNK]
    }
    #[cold]
    fn make_chunk(&mut self) -> u32 {
        if let Some(chunk) = self.free_chunks.pop() {
            self.chunks[chunk as usize] = [0; CHUNK];
            return chunk;
        }
        self.chunks.push([0; CHUNK]);
        self.chunks.len() as u32 - 1
    }
    /// Returns a word as last stored.
    #[inline]
    pub(crate) fn load(&self, pfn: Pfn, word: usize) -> u64 {
        self.load_with_ahead(pfn, word).0
    }
    /// Returns a word as last stored, and the CPU that may be ahead with stores to its frame.
    #[inline]
    pub(crate) fn load_with_ahead(&self, pfn: Pfn, word: usize) -> (u64, usize) {
        const { assert!(NO_CPU == 0_u16.wrapping_sub(1)) };
        let frame = self.frame(pfn);
        let chunk = &self.chunks[frame.chunks[word / CHUNK] as usize];
        (chunk[word % CHUNK], usize::from(frame.ahead.wrapping_sub(1)))
    }
    /// Returns the first word, at or after `word`, whose chunk was written since its frame was
    /// cleared. All words before it are 0 and have been since then.
    pub(crate) fn first_kept(&self, pfn: Pfn, word: usize) -> usize {
        let mut chunks = self.frame(pfn).chunks.iter().enumerate().skip(word / CHUNK);
        let kept = chunks.find(|(_, chunk)| **chunk != NONE);
        kept.map_or(WORDS, |(at, _)| word.max(at * CHUNK))
    }
    /// Writes a word; returns the old one.
    #[inline]
    pub(crate) fn replace(&mut self, pfn: Pfn, word: usize, value: u64) -> u64 {
        let place = self.place(pfn);
        self.forget(place);
        std::mem::replace(self.word_mut(place, word), value)
    }
    /// Writes a word without a turn, on CPU `at` at `time_ps`, and records the old one. No CPU
    /// reads the state before `floor_ps` any more.
    pub(crate) fn store(
        &mut self,
        at: usize,
        (pfn, word): (Pfn, usize),
        (time_ps, floor_ps): (u64, u64),
        value: u64,
    ) {
        let place = self.place(pfn);
        self.forget(place);
        self.frames[place].ahead = at as u16 + 1;
        let before = std::mem::replace(self.word_mut(place, word), value);
        let stores = &mut self.stores[at];
        if stores.len() == stores.capacity() {
            stores.retain(|stored| stored.time_ps >= floor_ps);
        }
        stores.push(Stored { frame: pfn.index() as u32, word: word as u16, time_ps, before });
    }
    /// Returns a word as it was before the first store of CPU `at` whose time is later by
    /// `is_later`.
    pub(crate) fn before(
        &self,
        at: usize,
        (pfn, word): (Pfn, usize),
        is_later: impl Fn(u64) -> bool,
    ) -> Option<u64> {
        let same = |store: &&Stored| {
            (store.frame as usize, usize::from(store.word)) == (pfn.index(), word)
        };
        let mut stores = self.stores[at].iter().filter(same);
        stores.find(|store| is_later(store.time_ps)).map(|store| store.before)
    }
    /// Returns the end of the walk that is cached with `root`, if it follows `path` through the
    /// upper levels: the last upper table and its entry.
    #[inline]
    pub(crate) fn remembered(&self, root: Pfn, path: &[usize]) -> Option<Walked> {
        let frame = self.frame(root);
        (frame.path != 0 && number_of(path) == Some(frame.path)).then(|| Walked {
            table: Pfn::new(frame.table as usize),
            depth: UPPER - 1,
            entry: frame.entry,
        })
    }
    /// Caches with the root, the first of the upper tables `passed`, that a walk on `path` ends at
    /// `entry` of the last one. Only if every CPU, at any time, would read the same words.
    pub(crate) fn remember(&mut self, path: &[usize], passed: [Pfn; UPPER], entry: u64) {
        let Some(number) = number_of(path) else { return };
        let places = passed.map(|table| self.place(table));
        let root = places[0] as u32;
        if places.iter().any(|&place| ![NONE, root].contains(&self.frames[place].root)) {
            return;
        }
        places.iter().for_each(|&place| self.frames[place].root = root);
        let frame = &mut self.frames[places[0]];
        (frame.path, frame.table, frame.entry) = (number, passed[UPPER - 1].index() as u32, entry);
    }
    /// Drops the cached walk that passes a frame, because a word of the frame changes.
    #[inline]
    fn forget(&mut self, place: usize) {
        let root = self.frames[place].root;
        if root != NONE {
            self.frames[root as usize].path = 0;
        }
    }
    /// Returns the host address at which a walk from `root` begins.
    #[inline]
    pub(crate) fn address(&self, root: Pfn) -> usize {
        (&raw const *self.frame(root)).addr()
    }
    /// Sets every word of a block to 0 and frees the host memory.
    pub(crate) fn clear(&mut self, pfn: Pfn, order: Order) {
        let (mut at, end) = (pfn.index(), pfn.index() + order.pages());
        while at < end {
            let stop = end.min((at / GROUP + 1) * GROUP);
            let Some(&kept) = self.kept.get(at / GROUP) else { return };
            let wanted = u64::MAX >> (GROUP - (stop - at)) << (at % GROUP);
            let mut left = kept & wanted;
            while left != 0 {
                self.drop_frame(at / GROUP * GROUP + left.trailing_zeros() as usize);
                left &= left - 1;
            }
            at = stop;
        }
    }
    #[cold]
    fn drop_frame(&mut self, index: usize) {
        let place = std::mem::replace(&mut self.places[index], NONE);
        self.kept[index / GROUP] &= !(1 << (index % GROUP));
        self.forget(place as usize);
        let frame = std::mem::replace(&mut self.frames[place as usize], Frame::EMPTY);
        self.free_chunks.extend(frame.chunks.into_iter().filter(|&chunk| chunk != NONE));
        self.free_frames.push(place);
    }
    /// Returns the host memory of all words, in bytes.
    pub(crate) fn host_bytes(&self) -> usize {
        let frames = self.frames.len() - self.free_frames.len();
        let chunks = self.chunks.len() - self.free_chunks.len();
        frames * size_of::<Frame>() + chunks * size_of::<[u64; CHUNK]>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: [usize; 4] = [1, 2, 3, 4];

    /// A root, two tables below it, and a cached walk through them.
    fn walked() -> (Tables, [Pfn; UPPER]) {
        let (mut tables, passed) = (Tables::new(2, 64), [5, 70, 7].map(Pfn::new));
        passed.iter().enumerate().for_each(|(at, &table)| {
            tables.replace(table, PATH[at], 1000 + at as u64);
        });
        tables.remember(&PATH, passed, 1002);
        (tables, passed)
    }

    #[test]
    fn a_walk_is_remembered_for_its_path_alone() {
        let (tables, [root, _, last]) = walked();
        let known = Walked { table: last, depth: 2, entry: 1002 };
        assert_eq!(tables.remembered(root, &PATH), Some(known));
        assert_eq!(tables.remembered(root, &[1, 2, 3]), Some(known));
        assert_eq!(tables.remembered(root, &[1, 2, 4, 4]), None);
        assert_eq!(tables.remembered(root, &[1, 2]), None);
        assert_eq!(tables.remembered(last, &PATH), None);
    }

    #[test]
    fn a_change_of_any_table_on_the_path_drops_the_cached_walk() {
        for at in 0..UPPER {
            let changes: [fn(&mut Tables, Pfn); 3] = [
                |tables, table| assert_eq!(tables.replace(table, 9, 1), 0),
                |tables, table| tables.store(1, (table, 9), (10, 0), 1),
                |tables, table| tables.clear(table, Order::ZERO),
            ];
            for change in changes {
                let (mut tables, passed) = walked();
                change(&mut tables, passed[at]);
                assert_eq!(tables.remembered(passed[0], &PATH), None, "table {at}");
            }
        }
    }

    #[test]
    fn a_table_that_another_walk_passes_is_remembered_once() {
        let (mut tables, [root, middle, last]) = walked();
        let other = Pfn::new(20);
        tables.remember(&PATH, [other, middle, last], 1002);
        assert_eq!(tables.remembered(other, &PATH), None);
        assert!(tables.remembered(root, &PATH).is_some());
    }

    #[test]
    fn cleared_words_are_zero_and_their_memory_is_used_again() {
        let (mut tables, passed) = walked();
        let before = tables.host_bytes();
        tables.clear(Pfn::new(0), Order::new(7).unwrap());
        assert!(passed.iter().all(|&table| tables.load(table, 1) == 0));
        let empty = tables.host_bytes();
        assert!(empty < before);
        passed.iter().for_each(|&table| assert_eq!(tables.replace(table, 1, 8), 0));
        assert_eq!(tables.host_bytes(), before);
        assert_eq!((tables.load(passed[0], 1), tables.load(passed[0], 2)), (8, 0));
        assert_eq!(tables.first_kept(passed[0], 0), 0);
        assert_eq!(tables.first_kept(passed[0], 70), WORDS);
    }
}
