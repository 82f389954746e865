//! Cache lines of the memory manager's own data: who wrote them last, who read them last.
//!
//! Touching a line is no operation on shared state: it costs time and waits for nobody. It is
//! exact as long as a line is touched only by whoever owns what it holds (under its lock, or as
//! the holder of the frame). `Access::Peek` is for lines that others may be writing meanwhile.
//!
//! Approximation: of several readers since the last write only the latest is known; the others pay
//! for the line again.

use crate::engine::Engine;
use crate::topology::{NOBODY, Seats};
use mmscale_mm::arch::{Access, Line};

/// The last writer and the last reader since, as CPU number plus 1; 0 is nobody.
type Users = u32;

/// All named lines. Those of frames take up host memory only once they are touched: a vector of
/// zeros comes from the host as untouched pages.
pub(crate) struct Lines {
    frames: Vec<Users>,
    free_areas: Vec<Users>,
    shared: Vec<Users>,
}

const fn writer(users: Users) -> u16 {
    ((users & 0xffff) as u16).wrapping_sub(1)
}

const fn reader(users: Users) -> u16 {
    ((users >> 16) as u16).wrapping_sub(1)
}

/// Uses a line on CPU `at`; returns what that costs, in ps.
#[inline]
fn take(users: &mut Users, at: usize, access: Access, seats: &Seats) -> u64 {
    const { assert!(NOBODY == 0_u16.wrapping_sub(1)) };
    let (writer, reader) = (writer(*users), reader(*users));
    let me = at as u16;
    let mine = at as u32 + 1;
    if access != Access::Write {
        if writer == me || reader == me {
            return seats.own_ps();
        }
        let from = if writer == NOBODY { reader } else { writer };
        *users = *users & 0xffff | mine << 16;
        return seats.transfer_ps(from, at);
    }
    *users = mine;
    let shared_by = if reader == NOBODY { me } else { reader };
    let from_reader = seats.transfer_ps(shared_by, at);
    let nobody_else = writer == NOBODY && reader != NOBODY;
    let from_writer = if nobody_else { 0 } else { seats.transfer_ps(writer, at) };
    from_writer.max(from_reader)
}

impl Lines {
    pub(crate) fn new(frames: usize) -> Self {
        Self { frames: vec![0; frames], free_areas: Vec::new(), shared: Vec::new() }
    }
    #[inline]
    fn touch(&mut self, line: Line, at: usize, access: Access, seats: &Seats) -> u64 {
        let (of, index) = match line {
            Line::Cold(_) => return seats.memory_ps(),
            Line::Frame(pfn) => (&mut self.frames, pfn.index()),
            Line::FreeArea(index) => (&mut self.free_areas, index as usize),
            Line::Shared(index) => (&mut self.shared, index as usize),
        };
        if index >= of.len() {
            of.resize(index + 1, 0);
        }
        take(&mut of[index], at, access, seats)
    }
}

impl Engine {
    /// The running CPU uses `line`; returns what that costs, in ps.
    #[inline]
    pub(crate) fn touch(&mut self, line: Line, access: Access) -> u64 {
        let cost = self.lines.touch(line, self.cur, access, &self.seats);
        self.scaled(cost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{LineCosts, Topology};
    use mmscale_mm::arch::{NodeId, Pfn};

    fn seats() -> Seats {
        let line = LineCosts {
            own_ps: 1,
            smt_ps: 2,
            cluster_ps: 3,
            node_ps: 4,
            remote_ps: 5,
            memory_ps: 6,
        };
        Seats::new(&Topology { cpus: 8, smt: 1, cluster: 2, nodes: 2 }, 8, line)
    }

    #[test]
    fn a_frame_costs_the_distance_to_the_last_cpu_that_touched_it() {
        let (seats, mut lines) = (seats(), Lines::new(4));
        let frame = Line::Frame(Pfn::new(2));
        let mut write = |at| lines.touch(frame, at, Access::Write, &seats);
        assert_eq!([write(0), write(0), write(1), write(3), write(7)], [6, 1, 3, 4, 5]);
        assert_eq!(lines.touch(Line::Cold(NodeId::new(0)), 0, Access::Read, &seats), 6);
    }

    #[test]
    fn a_reader_keeps_its_copy_until_the_next_write() {
        let (seats, mut lines) = (seats(), Lines::new(0));
        let line = Line::Shared(5);
        let mut use_it = |at, access| lines.touch(line, at, access, &seats);
        use_it(0, Access::Write);
        assert_eq!([use_it(1, Access::Read), use_it(1, Access::Read)], [3, 1]);
        assert_eq!(use_it(0, Access::Read), 1);
        assert_eq!(use_it(0, Access::Write), 3, "the copy of cpu1 is recalled");
        assert_eq!(use_it(1, Access::Read), 3);
    }
}
