//! Statistics of memory groups: CPUs change groups while others flush.

use mmscale_arch::NodeId;
use mmscale_arch::sync::PreemptGuard;
use mmscale_frames::vmstat::NodeItem;
use mmscale_interleave::{CpuBody, Model, check, cpu_body, run};
use mmscale_mm::memcg::{GroupId, Groups, GroupsConfig};
use std::sync::Arc;

const GROUPS: [GroupId; 3] = [GroupId::new(1), GroupId::new(2), GroupId::new(3)];
const NODE: NodeId = NodeId::new(0);
const SCHEDULES: usize = 400;

/// Changes all groups, twice.
fn change(groups: &Groups<Model>) {
    for group in [GROUPS, GROUPS].concat() {
        let pinned = PreemptGuard::new();
        groups.stats().add(&pinned, group, NODE, NodeItem::AnonMapped, 1);
    }
}

fn flush(groups: &Groups<Model>) {
    groups.stats().flush();
}

fn scenario(steps: &'static [fn(&Groups<Model>)]) {
    check(SCHEDULES, move || {
        let mut made = None;
        run(steps.len(), || {
            let config = GroupsConfig { count: 1 + GROUPS.len(), depth: 2 };
            let groups = Arc::new(Groups::<Model>::new(config, 1));
            made = Some(Arc::clone(&groups));
            let body = |&step: &fn(&Groups<Model>)| -> CpuBody {
                let groups = Arc::clone(&groups);
                cpu_body(move || step(&groups))
            };
            (None, steps.iter().map(body).collect())
        });
        let groups = made.expect("it was built");
        let (stats, item) = (groups.stats(), NodeItem::AnonMapped);
        // Every group that a flush may have to visit is in a list.
        assert_eq!(stats.verify(), Ok(()));
        let changes = steps.iter().filter(|&&step| core::ptr::fn_addr_eq(step, change as fn(&_)));
        let pages = 2 * changes.count() as i64;
        GROUPS.into_iter().for_each(|group| assert_eq!(stats.lruvec(group, NODE, item), pages));
        assert_eq!(stats.lruvec(GroupId::ROOT, NODE, item), 3 * pages);
    });
}

#[test]
fn changes_against_a_flush() {
    scenario(&[change, flush]);
}

#[test]
fn changes_on_two_cpus_against_two_flushes() {
    scenario(&[change, change, flush, flush]);
}
