//! Names of single locks.

use mmscale_arch::{CpuId, LockClass, LockInstance, NamedLock, NodeId};

#[test]
fn names_tell_which_lock_of_a_class_it_is() {
    let name = |class, instance| NamedLock { class, instance }.to_string();
    assert_eq!(name(LockClass::Zone, LockInstance::Numbered(1)), "zone 1");
    assert_eq!(name(LockClass::Pcp, LockInstance::OfCpu(CpuId::new(3))), "pcp of cpu3");
    let group = LockInstance::OfGroup(7, NodeId::new(0));
    assert_eq!(name(LockClass::Lruvec, group), "lruvec of group 7 on node 0");
    assert_eq!(name(LockClass::Pte, LockInstance::Unnamed), "pte");
}
