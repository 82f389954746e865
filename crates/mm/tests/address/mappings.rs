//! The trees of the VMAs that map a file: each VMA is in one, whatever CPU changes it.

use crate::address::machine::{Machine, range};
use mmscale_arch::Vpn;
use mmscale_mm::space::{File, ImapPolicy, MapRequest, MayMove, Place, Prot, RemapRequest, Space};
use mmscale_stepped::Stepped;
use std::sync::Arc;

const AT: u64 = 512 * 5;
/// CPUs of two groups of four cores and of two nodes, which alternate.
const CPUS: usize = 8;

/// A machine whose address spaces map one file.
struct World {
    machine: Machine,
    file: Arc<File<Stepped>>,
}

impl World {
    fn boot(imap: ImapPolicy) -> Self {
        let machine = Machine::boot(CPUS, |config| config.space.imap = imap);
        let file = File::new(machine.on(), 64);
        Self { machine, file }
    }
    /// Maps pages of the file with their own numbers, on `cpu`.
    fn map(&self, space: &Space<Stepped>, cpu: usize, first: u64, pages: u64, prot: Prot) {
        self.machine.go_to(cpu);
        space.hold_file(&self.file).expect("there is memory");
        let at = Place::Fixed(Vpn::new(AT + first));
        let request = MapRequest::new(pages).at(at).of_file(self.file.id(), first).prot(prot);
        space.mmap(self.machine.on(), request).expect("there is memory");
        self.machine.check();
    }
    /// Sets the protection of pages on `cpu`. Returns the number of VMAs.
    fn protect(&self, space: &Space<Stepped>, cpu: usize, first: u64, prot: Prot) -> usize {
        self.machine.go_to(cpu);
        space.mprotect(self.machine.on(), range(AT + first, 4), prot).expect("it is mapped");
        self.machine.check();
        space.vmas().len()
    }
    fn end(self) {
        self.file.put(self.machine.on());
        self.machine.end();
    }
}

#[test]
fn a_vma_leaves_the_tree_in_which_it_was_linked() {
    for imap in ImapPolicy::ALL {
        let world = World::boot(imap);
        let space = world.machine.space();
        // Two VMAs of different trees are merged by a third CPU, and split again.
        world.map(&space, 0, 0, 4, Prot::RW);
        world.map(&space, 5, 4, 4, Prot::READ);
        assert_eq!(world.protect(&space, 2, 0, Prot::READ), 1, "{imap:?}");
        assert_eq!(world.protect(&space, 7, 2, Prot::RW), 3, "{imap:?}");
        assert_eq!(world.protect(&space, 4, 2, Prot::READ), 1, "{imap:?}");
        // A mapping between two others joins all three.
        world.map(&space, 1, 12, 4, Prot::READ);
        world.map(&space, 6, 8, 4, Prot::READ);
        assert_eq!(space.vmas().len(), 1, "{imap:?}");
        // One below another takes its place.
        world.map(&space, 3, 36, 4, Prot::RW);
        world.map(&space, 0, 32, 4, Prot::RW);
        assert_eq!(space.vmas().len(), 2, "{imap:?}");
        // A copy, whose CPU and last CPU differ.
        world.machine.go_to(2);
        let child = space.fork(world.machine.on()).expect("there is memory");
        world.machine.check();
        world.machine.go_to(7);
        world.machine.exit(child);
        world.machine.check();
        // A part of it moves.
        world.machine.go_to(4);
        let to = Vpn::new(AT + 100);
        let request = RemapRequest {
            from: Vpn::new(AT + 34),
            old_pages: 4,
            new_pages: 4,
            may_move: MayMove::To(to),
        };
        assert_eq!(space.mremap(world.machine.on(), request), Ok(to));
        world.machine.check();
        world.machine.go_to(5);
        assert_eq!(space.munmap(world.machine.on(), range(AT + 3, 31)), Ok(()));
        world.machine.check();
        world.machine.go_to(1);
        world.machine.exit(space);
        world.end();
    }
}
