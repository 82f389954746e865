//! Cache lines of the memory manager's own data: the last writer, and the last reader since.
//!
//! The simple version: every access to a line waits for its turn. The real one: touching a line is
//! no operation on shared state. It costs time and does not wait. That is exact as long as only the
//! owner of the data on the line touches it: the holder of its lock, or of the frame.
//! `Access::Peek` is for a frame that another CPU may be writing. It waits for the CPU's turn, sees
//! the line as of that time even if its owner has run ahead on the host, and changes nothing.
//!
//! A read costs the transfer from the last writer; a hit in the own cache if the CPU is the last
//! writer or the last reader. A write costs the longer of two transfers: from the last writer, and
//! from the last reader, whose copy it invalidates. A line without a user comes from memory.
//!
//! A frame's line that a CPU of the own cluster used last comes from memory again if the cluster's
//! caches have been filled since then; see [`crate::caches`].
//!
//! Approximations: of several readers since the last write only the latest is known, and the others
//! pay for the line again. A CPU that peeks twice pays twice, and the owner pays nothing for it.

use crate::caches::{Age, Caches};
use crate::topology::{Distances, NO_CPU};
use mmscale_arch::{Access, DataLine, Line, LineName};
use std::cell::Cell;

/// The last writer and the last reader since, as CPU number plus 1; 0 if there is none.
pub(crate) type Users = u32;

/// The line of a frame: its users, and when its last writer used it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FrameLine {
    users: Users,
    used: Age,
}

impl FrameLine {
    #[inline]
    fn of(word: u64) -> Self {
        Self { users: word as u32, used: Age((word >> 32) as u32) }
    }
    #[inline]
    fn word(self) -> u64 {
        u64::from(self.users) | u64::from(self.used.0) << 32
    }
    pub(crate) fn writer(self) -> u16 {
        writer(self.users)
    }
}

/// Frames whose lines are kept together, on a page of most hosts.
const GROUP: usize = 512;

/// All named lines.
#[derive(Default)]
pub(crate) struct Lines {
    /// By groups of frames, a [`FrameLine`] each; absent until a frame of the group is touched. One
    /// vector of zeros would cost more: the host maps its page of zeros where it is read, and
    /// interrupts the process's other CPUs when a write replaces that.
    frames: Vec<Option<Box<[u64; GROUP]>>>,
    free_areas: Vec<Users>,
    lru_lists: Vec<Users>,
    lru_sizes: Vec<Users>,
    rmap_trees: Vec<Users>,
}

const fn writer(users: Users) -> u16 {
    ((users & 0xffff) as u16).wrapping_sub(1)
}

const fn reader(users: Users) -> u16 {
    ((users >> 16) as u16).wrapping_sub(1)
}

/// A line in the cache of the CPU that uses it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fetched {
    /// The farthest CPU that had it, this one included; `NO_CPU`: memory.
    pub(crate) from: u16,
    /// The time of the transfer and, for an atomic, of the operation, in ps.
    pub(crate) cost_ps: u64,
}

/// Uses a line on CPU `at`.
#[inline]
pub(crate) fn take(users: &mut Users, at: usize, access: Access, distances: &Distances) -> Fetched {
    const { assert!(NO_CPU == 0_u16.wrapping_sub(1)) };
    let (writer, reader) = (writer(*users), reader(*users));
    let me = at as u16;
    let mine = at as u32 + 1;
    if !access.writes() {
        if writer == me || reader == me {
            return Fetched { from: me, cost_ps: distances.own_ps() };
        }
        let from = if writer == NO_CPU { reader } else { writer };
        *users = *users & 0xffff | mine << 16;
        return Fetched { from, cost_ps: distances.transfer_ps(from, at) };
    }
    *users = mine;
    let shared_by = if reader == NO_CPU { me } else { reader };
    let from_reader = distances.transfer_ps(shared_by, at);
    let nobody_else = writer == NO_CPU && reader != NO_CPU;
    let from_writer = if nobody_else { 0 } else { distances.transfer_ps(writer, at) };
    if from_writer > from_reader {
        Fetched { from: writer, cost_ps: from_writer }
    } else {
        Fetched { from: shared_by, cost_ps: from_reader }
    }
}

/// Returns the name of a line.
pub(crate) fn name_of(line: Line) -> LineName {
    LineName::Data(match line {
        Line::Frame(_) => DataLine::StructPage,
        Line::FreeArea(_) => DataLine::FreeArea,
        Line::LruLists(_) => DataLine::LruLists,
        Line::LruSizes(_) => DataLine::LruSizes,
        Line::RmapTree(_) => DataLine::RmapTree,
        Line::Percpu(_) | Line::EachPercpu(_) => DataLine::Percpu,
        Line::Cold(_) => DataLine::Other,
    })
}

impl Lines {
    /// Returns the word of a frame's line; `None` if no frame of its group was touched.
    #[inline]
    fn word(&self, index: usize) -> Option<u64> {
        Some(self.frames.get(index / GROUP)?.as_ref()?[index % GROUP])
    }
    /// Whether CPU `at` is the last writer of the frame's line, without readers since, and used it
    /// a short time before `now`. Then every use costs a hit in the own cache and leaves the line
    /// as it is.
    #[inline]
    pub(crate) fn is_own(&self, index: usize, at: usize, now: Age, caches: &Caches) -> bool {
        self.word(index).is_some_and(|word| {
            let line = FrameLine::of(word);
            line.users == at as Users + 1 && caches.is_fresh(line.used, now)
        })
    }
    /// Returns the line of a frame.
    #[inline]
    pub(crate) fn frame(&self, index: usize) -> FrameLine {
        FrameLine::of(self.word(index).unwrap_or(0))
    }
    /// Returns whether the line of a frame left the caches of the cluster of CPU `at`, in which it
    /// was used last.
    #[inline]
    pub(crate) fn is_lost(
        line: FrameLine,
        at: usize,
        now: Age,
        (caches, distances): (&Caches, &Distances),
    ) -> bool {
        let writer = writer(line.users);
        writer != NO_CPU
            && distances.cluster_of(usize::from(writer)) == distances.cluster_of(at)
            && caches.is_lost(line.used, now)
    }
    /// Uses the line of a frame on CPU `at`, which is its owner.
    pub(crate) fn touch_frame(
        &mut self,
        index: usize,
        at: usize,
        access: Access,
        now: Age,
        (caches, distances): (&Caches, &Distances),
    ) -> Fetched {
        let group = index / GROUP;
        if group >= self.frames.len() {
            self.frames.resize_with(group + 1, || None);
        }
        let words = self.frames[group].get_or_insert_with(|| Box::new([0; GROUP]));
        let word = &mut words[index % GROUP];
        let mut line = FrameLine::of(*word);
        let is_lost = Self::is_lost(line, at, now, (caches, distances));
        let mut fetched = take(&mut line.users, at, access, distances);
        if is_lost {
            fetched = Fetched { from: NO_CPU, cost_ps: distances.memory_ps() };
        }
        // Other readers leave no mark: a CPU that peeks looks at the notes of the writer only.
        if access.writes() || usize::from(writer(line.users)) == at {
            line.used = now;
        }
        *word = line.word();
        fetched
    }
    /// Uses a line that is not a frame's.
    #[inline]
    pub(crate) fn touch(
        &mut self,
        line: Line,
        at: usize,
        access: Access,
        distances: &Distances,
    ) -> Fetched {
        let (of, index) = match line {
            Line::Percpu(_) | Line::EachPercpu(_) | Line::Cold(_) | Line::Frame(_) => {
                return Fetched { from: NO_CPU, cost_ps: distances.memory_ps() };
            }
            Line::FreeArea(index) => (&mut self.free_areas, index as usize),
            Line::LruLists(index) => (&mut self.lru_lists, index as usize),
            Line::LruSizes(index) => (&mut self.lru_sizes, index as usize),
            Line::RmapTree(index) => (&mut self.rmap_trees, index as usize),
        };
        if index >= of.len() {
            of.resize(index + 1, 0);
        }
        take(&mut of[index], at, access, distances)
    }
}

/// The state of an atomic's line: its last writer, the readers since and, for writes, the time
/// until which it is busy.
///
/// Where the interconnect does additions, one to a line that another CPU has used leaves the line
/// there: each further one costs the way to it, but keeps it busy for a short time only. Any other
/// write brings it back into a cache.
///
/// Approximation: readers are kept in 64 bits, by CPU number modulo 64. With more than 64 CPUs a
/// reader may find the line shared though another CPU brought it in.
pub(crate) struct LineState {
    /// The number of its [`LineName`].
    name: u8,
    writer: Cell<u16>,
    reader: Cell<u16>,
    readers: Cell<u64>,
    busy_until: Cell<u64>,
    /// Whether the last writer's add was done in the interconnect, so that no cache has the line.
    far: Cell<bool>,
    /// Its number in [`crate::visits`], plus 1; 0 if it has none.
    pub(crate) contended: Cell<u32>,
}

impl LineState {
    pub(crate) const fn new(name: LineName) -> Self {
        const { assert!(LineName::COUNT <= 256) };
        Self {
            name: name.number() as u8,
            writer: Cell::new(NO_CPU),
            reader: Cell::new(NO_CPU),
            readers: Cell::new(0),
            busy_until: Cell::new(0),
            far: Cell::new(false),
            contended: Cell::new(0),
        }
    }
    /// Returns the number of its [`LineName`].
    pub(crate) fn name(&self) -> usize {
        usize::from(self.name)
    }
    /// Returns the last writer, and until when the line is busy; `None` if it had none.
    pub(crate) fn busy(&self) -> Option<(usize, u64)> {
        let writer = self.writer.get();
        (writer != NO_CPU).then(|| (usize::from(writer), self.busy_until.get()))
    }
    /// Whether the line may stay in the interconnect. A CPU that changes the count of a page writes
    /// other fields of its record too, which bring the line into its cache.
    fn may_stay_far(&self) -> bool {
        self.name() != LineName::Data(DataLine::StructPage).number()
    }
    /// Like [`LineState::take`], if `cpu` is the last writer and the line has no readers since.
    #[inline]
    pub(crate) fn take_own(
        &self,
        cpu: usize,
        usage: Usage,
        clock: u64,
        own_ps: u64,
        atomic_ps: u64,
    ) -> Option<u64> {
        let is_own = usize::from(self.writer.get()) == cpu && !self.far.get();
        if !is_own || self.reader.get() != NO_CPU {
            return None;
        }
        let busy = self.busy_until.get().saturating_sub(clock);
        let cost = match usage {
            Usage::Load => return Some(own_ps),
            Usage::LoadUncharged => return Some(0),
            Usage::StoreUncharged if busy == 0 => return Some(0),
            Usage::Store | Usage::StoreUncharged => busy + own_ps,
            Usage::Update | Usage::Add => busy + own_ps + atomic_ps,
        };
        self.busy_until.set(clock + cost);
        Some(cost)
    }
    /// Brings the line to `cpu` at `clock`. The time includes the wait for a busy line. With
    /// `joins`, another CPU of the cluster has the line by then.
    #[inline]
    pub(crate) fn take(
        &self,
        cpu: usize,
        usage: Usage,
        clock: u64,
        distances: &Distances,
        Atomics { atomic_ps, far_add_ps, joins }: Atomics,
    ) -> Fetched {
        let me = cpu as u16;
        let bit = 1 << (cpu % 64);
        let writer = self.writer.get();
        let far = self.far.get();
        let owner = (usize::from(writer) == cpu || writer == NO_CPU) && !far;
        let reads = matches!(usage, Usage::Load | Usage::LoadUncharged);
        if reads && (owner || self.readers.get() & bit != 0) {
            let cost_ps = if usage == Usage::Load { distances.own_ps() } else { 0 };
            return Fetched { from: me, cost_ps };
        }
        let busy = self.busy_until.get().saturating_sub(clock);
        let move_ps = match (owner, far) {
            (true, _) => distances.own_ps(),
            (false, false) if joins => {
                distances.transfer_ps(writer, cpu).min(distances.cluster_ps())
            }
            (false, false) => distances.transfer_ps(writer, cpu),
            (false, true) => distances.far_ps(writer, cpu),
        };
        if usage == Usage::Add && far_add_ps > 0 && !owner && self.may_stay_far() {
            self.busy_until.set(clock + busy + far_add_ps);
            self.writer.set(me);
            self.reader.set(NO_CPU);
            self.readers.set(0);
            self.far.set(true);
            return Fetched { from: writer, cost_ps: busy + distances.far_ps(writer, cpu) };
        }
        if reads {
            self.readers.set(self.readers.get() | bit);
            self.reader.set(me);
            return Fetched { from: if owner { me } else { writer }, cost_ps: busy + move_ps };
        }
        let reader = self.reader.replace(NO_CPU);
        let invalidate_ps = if reader == NO_CPU { 0 } else { distances.transfer_ps(reader, cpu) };
        self.writer.set(me);
        self.readers.set(0);
        self.far.set(false);
        let updates = matches!(usage, Usage::Update | Usage::Add);
        let extra_ps = if updates { atomic_ps } else { 0 };
        let cost = busy + move_ps.max(invalidate_ps) + extra_ps;
        self.busy_until.set(clock + cost);
        let from = match (invalidate_ps > move_ps, owner) {
            (true, _) => reader,
            (false, true) => me,
            (false, false) => writer,
        };
        Fetched { from, cost_ps: cost }
    }
}

/// The access of an operation to its line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Usage {
    /// A read.
    Load,
    /// A read that is part of other work: a hit costs nothing.
    LoadUncharged,
    /// A write.
    Store,
    /// A write that is part of other work: a hit on a line that is not busy costs nothing.
    StoreUncharged,
    /// A read and a write in one step.
    Update,
    /// An update that the interconnect can do, without moving the line: an addition, or bits that
    /// are set or cleared.
    Add,
}

/// The costs of an atomic, in ps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Atomics {
    /// An update of a line in the own cache.
    pub(crate) atomic_ps: u64,
    /// How long the interconnect is busy with an addition; 0: it does none.
    pub(crate) far_add_ps: u64,
    /// Whether another CPU of the cluster waits for the line already.
    pub(crate) joins: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{LineCosts, Topology};
    use mmscale_arch::NodeId;

    fn distances() -> Distances {
        let line = LineCosts {
            own_ps: 1,
            smt_ps: 2,
            cluster_ps: 3,
            node_ps: 4,
            remote_ps: 5,
            memory_ps: 6,
        };
        Distances::new(&Topology { cpus: 8, smt: 1, cluster: 2, nodes: 2 }, 8, line)
    }

    const CACHE_KIB: u32 = 64;

    #[test]
    fn a_frame_costs_the_distance_to_the_last_cpu_that_touched_it() {
        let (distances, mut lines) = (distances(), Lines::default());
        let caches = Caches::new(CACHE_KIB, 4);
        let mut write =
            |at| lines.touch_frame(2, at, Access::Write, Age(0), (&caches, &distances)).cost_ps;
        assert_eq!([write(0), write(0), write(1), write(3), write(7)], [6, 1, 3, 4, 5]);
        let cold = lines.touch(Line::Cold(NodeId::new(0)), 0, Access::Read, &distances);
        assert_eq!(cold, Fetched { from: NO_CPU, cost_ps: 6 });
    }

    #[test]
    fn a_line_comes_from_memory_after_the_caches_were_filled() {
        let (distances, mut lines) = (distances(), Lines::default());
        let caches = Caches::new(CACHE_KIB, 4);
        let mut write = |at, kib| {
            lines.touch_frame(2, at, Access::Write, Age(kib), (&caches, &distances)).cost_ps
        };
        assert_eq!(write(0, u32::MAX - 9), 6);
        assert_eq!([write(0, 54), write(0, 119)], [1, 6], "64 KiB later, past the wrap; 65 later");
        assert_eq!([write(1, 183), write(0, 248)], [3, 6], "the same cluster");
        assert_eq!([write(2, 999), write(0, 5)], [4, 4], "another cluster counts by itself");
        let own = |lines: &Lines, kib| lines.is_own(2, 0, Age(kib), &caches);
        assert!(own(&lines, 13) && !own(&lines, 14), "an eighth of it is fresh");
    }

    #[test]
    fn each_frame_has_a_line_of_its_own() {
        let (distances, mut lines) = (distances(), Lines::default());
        let caches = Caches::new(CACHE_KIB, 4);
        let mut frames = [0, 1, GROUP - 1, GROUP, GROUP + 1, 5 * GROUP];
        frames.reverse();
        for (cpu, index) in frames.into_iter().enumerate() {
            let none = FrameLine { users: 0, used: Age(0) };
            assert_eq!(lines.frame(index), none, "{index}: its group may exist, it was not used");
            lines.touch_frame(index, cpu, Access::Write, Age(0), (&caches, &distances));
        }
        for (cpu, index) in frames.into_iter().enumerate() {
            assert_eq!(usize::from(lines.frame(index).writer()), cpu);
            assert!(lines.is_own(index, cpu, Age(0), &caches));
        }
        assert!(!lines.is_own(3 * GROUP, 0, Age(0), &caches), "a group that was never touched");
        assert!(!lines.is_own(9 * GROUP, 0, Age(0), &caches), "beyond all groups");
    }

    #[test]
    fn a_reader_keeps_its_copy_until_the_next_write() {
        let (distances, mut lines) = (distances(), Lines::default());
        let line = Line::LruLists(5);
        let mut use_it = |at, access| lines.touch(line, at, access, &distances).cost_ps;
        use_it(0, Access::Write);
        assert_eq!([use_it(1, Access::Read), use_it(1, Access::Read)], [3, 1]);
        assert_eq!(use_it(0, Access::Read), 1);
        assert_eq!(use_it(0, Access::Write), 3, "the copy of cpu1 is recalled");
        assert_eq!(use_it(1, Access::Read), 3);
    }
}
