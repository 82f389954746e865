//! Words of frames that are page tables, or hold other things of the memory manager's own.
//!
//! Host memory is taken 64 words at a time, and given back when the frame is cleared or dropped.
//!
//! Who holds the lock of a table stores into it without waiting for its turn; other CPUs may read
//! the same words without the lock, at theirs. So that they see what stood there at their time,
//! even if the holder has run ahead on the host, a store notes what it overwrote. At most one CPU
//! can be ahead with stores to a word: another would have got the lock at a turn of its own, when
//! all that the first did under it lay in the past.

use crate::topology::NOBODY;
use mmscale_mm::arch::{Order, Pfn};

/// Words in a frame.
const WORDS: usize = 512;
/// Words that are kept together.
const CHUNK: usize = 64;
/// Frames that are found together.
const GROUP: usize = 64;

/// The words of one frame.
#[derive(Default)]
struct Frame {
    chunks: [Option<Box<[u64; CHUNK]>>; WORDS / CHUNK],
    /// The CPU that stored last without a turn, plus 1.
    ahead: u16,
}

impl Frame {
    #[inline]
    fn replace(&mut self, word: usize, value: u64) -> u64 {
        let chunk = self.chunks[word / CHUNK].get_or_insert_with(|| Box::new([0; CHUNK]));
        std::mem::replace(&mut chunk[word % CHUNK], value)
    }
}

/// A store that its CPU made before its turn.
struct Stored {
    frame: u32,
    word: u16,
    /// When, in ps.
    time_ps: u64,
    before: u64,
}

type Group = [Option<Box<Frame>>; GROUP];

/// All words.
pub(crate) struct Tables {
    groups: Vec<Option<Box<Group>>>,
    /// Of each CPU, the stores that others may not have seen yet, and some older ones.
    stores: Vec<Vec<Stored>>,
}

impl Tables {
    pub(crate) fn new(cpus: usize) -> Self {
        Self { groups: Vec::new(), stores: (0..cpus).map(|_| Vec::new()).collect() }
    }
    fn frame(&self, pfn: Pfn) -> Option<&Frame> {
        let group = self.groups.get(pfn.index() / GROUP)?.as_ref()?;
        group[pfn.index() % GROUP].as_deref()
    }
    fn frame_mut(&mut self, pfn: Pfn) -> &mut Frame {
        let at = pfn.index() / GROUP;
        if at >= self.groups.len() {
            self.groups.resize_with(at + 1, || None);
        }
        let group = self.groups[at].get_or_insert_with(|| Box::new([const { None }; GROUP]));
        group[pfn.index() % GROUP].get_or_insert_default()
    }
    /// A word as it was stored last.
    #[inline]
    pub(crate) fn load(&self, pfn: Pfn, word: usize) -> u64 {
        let chunk = self.frame(pfn).and_then(|frame| frame.chunks[word / CHUNK].as_ref());
        chunk.map_or(0, |chunk| chunk[word % CHUNK])
    }
    /// A word as it was stored last, and the CPU that may be ahead with stores to its frame.
    #[inline]
    pub(crate) fn load_with_ahead(&self, pfn: Pfn, word: usize) -> (u64, usize) {
        let Some(frame) = self.frame(pfn) else { return (0, usize::from(NOBODY)) };
        let stored = frame.chunks[word / CHUNK].as_ref().map_or(0, |chunk| chunk[word % CHUNK]);
        (stored, usize::from(frame.ahead.wrapping_sub(1)))
    }
    /// The first word from `word` on that was ever written since its frame was cleared; all before
    /// it are 0, and always were.
    pub(crate) fn first_kept(&self, pfn: Pfn, word: usize) -> usize {
        let Some(frame) = self.frame(pfn) else { return WORDS };
        let mut chunks = frame.chunks.iter().enumerate().skip(word / CHUNK);
        let kept = chunks.find(|(_, chunk)| chunk.is_some());
        kept.map_or(WORDS, |(at, _)| word.max(at * CHUNK))
    }
    /// Writes a word; returns what was there.
    #[inline]
    pub(crate) fn replace(&mut self, pfn: Pfn, word: usize, value: u64) -> u64 {
        self.frame_mut(pfn).replace(word, value)
    }
    /// CPU `at` writes a word without a turn at `time_ps`, and what stood there is noted. Nobody
    /// will look at the machine as it was before `floor_ps`.
    pub(crate) fn store(
        &mut self,
        at: usize,
        (pfn, word): (Pfn, usize),
        (time_ps, floor_ps): (u64, u64),
        value: u64,
    ) {
        let frame = self.frame_mut(pfn);
        frame.ahead = at as u16 + 1;
        let before = frame.replace(word, value);
        let stores = &mut self.stores[at];
        if stores.len() == stores.capacity() {
            stores.retain(|stored| stored.time_ps >= floor_ps);
        }
        stores.push(Stored { frame: pfn.index() as u32, word: word as u16, time_ps, before });
    }
    /// What a word was before the first store of CPU `at` for which `is_later` holds of its time.
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
    /// Every word of a block is 0 from now on, and takes up no memory.
    pub(crate) fn clear(&mut self, pfn: Pfn, order: Order) {
        let (mut at, end) = (pfn.index(), pfn.index() + order.pages());
        while at < end {
            let stop = end.min((at / GROUP + 1) * GROUP);
            if let Some(Some(group)) = self.groups.get_mut(at / GROUP) {
                group[at % GROUP..(stop - 1) % GROUP + 1].fill_with(|| None);
                if group.iter().all(Option::is_none) {
                    self.groups[at / GROUP] = None;
                }
            }
            at = stop;
        }
    }
    /// Host memory of all words, in bytes.
    pub(crate) fn host_bytes(&self) -> usize {
        let frames = self.groups.iter().flatten().flat_map(|group| group.iter());
        let of_frame = |frame: &Frame| {
            size_of::<Frame>() + frame.chunks.iter().flatten().count() * CHUNK * size_of::<u64>()
        };
        let groups = self.groups.iter().flatten().count() * size_of::<Group>();
        frames.filter_map(Option::as_deref).map(of_frame).sum::<usize>()
            + groups
            + self.groups.len() * size_of::<usize>()
    }
}
