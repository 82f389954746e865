//! CPUs that stop and start again.

use crate::calls::common::{POLICIES, World};
use mmscale_arch::CpuId;
use mmscale_mm::smp::{Reached, Wait};
use mmscale_stepped as stepped;

#[test]
fn a_cpu_stops_only_with_nothing_queued_and_no_interrupt_on_its_way() {
    for policy in POLICIES {
        let world = World::new(policy, 2);
        world.call(&[1], 4, Wait::No);
        stepped::set_cpu(1);
        stepped::interrupt(|| assert!(!world.smp.cpu_dying(), "{policy:?}: an interrupt comes"));
        assert_eq!((world.deliver(), world.ran()), (1, vec![(1, 4)]));
        stepped::interrupt(|| assert!(world.smp.cpu_dying(), "{policy:?}"));
        stepped::set_cpu(0);
        assert_eq!(world.call(&[1], 5, Wait::Spin), Reached::default(), "{policy:?}");
        assert_eq!((world.deliver(), world.ran()), (0, vec![]));
    }
}

#[test]
fn a_cpu_that_is_back_is_called_from_its_first_step_on() {
    for policy in POLICIES {
        for by_itself in [true, false] {
            let world = World::new(policy, 2);
            stepped::set_cpu(1);
            stepped::interrupt(|| assert!(world.smp.cpu_dying()));
            if by_itself {
                stepped::interrupt(|| world.smp.idle_exit());
            }
            stepped::set_cpu(0);
            if !by_itself {
                world.smp.cpu_online(CpuId::new(1));
            }
            assert_eq!(world.call(&[1], 6, Wait::Spin).others, 1, "{policy:?}");
            assert_eq!(world.ran(), [(1, 6)]);
            // A second call of it changes nothing.
            world.call(&[1], 7, Wait::No);
            world.smp.cpu_online(CpuId::new(1));
            stepped::set_cpu(1);
            stepped::interrupt(|| world.smp.idle_exit());
            assert_eq!((world.deliver(), world.ran()), (1, vec![(1, 7)]), "{policy:?}");
        }
    }
}
