//! Memory requirements of plans, estimated before anything runs.
//!
//! This estimates the resident memory of simulated machines. It is meant to refuse runs that cannot
//! fit, not to be exact. It was fitted to runs of `vmstat`, `churn` and `ipi` on 256 to 4096 CPUs,
//! and of `churn` with up to 8192 processes per CPU.

use std::fs;
use std::path::Path;

use mmscale_document::Target;
use mmscale_sim::{StackNeeds, stack_needs};

use super::{CallError, Plan};
use crate::host::host_cpus;

/// The program itself, with a machine of the smallest profile.
const BASE_BYTES: u64 = 48 << 20;
/// A CPU with its caches, tables, probe and the pages of one program.
const CPU_BYTES: u64 = 208 << 10;
/// A task: the touched pages of its stack, its address space and its page tables.
const TASK_BYTES: u64 = 24 << 10;
/// Tasks of the machine per CPU: the idle task and the worker.
const OWN_TASKS: u64 = 2;
/// Mappings of the program other than stacks.
const OTHER_MAPPINGS: u64 = 1024;

/// Requirements of concurrent runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Needs {
    tasks: u64,
    resident_bytes: u64,
    address_bytes: u64,
    mappings: u64,
}

/// Resources of this computer; `u64::MAX` without a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Host {
    memory_bytes: u64,
    address_bytes: u64,
    mappings: u64,
}

/// Returns an error, with the numbers, if a plan needs more memory than this computer has. Other
/// plans may still fail, because the estimate is not exact.
pub fn fits_host(plans: &[Plan]) -> Result<(), CallError> {
    let stack = stack_needs();
    let host = Host::of_this_computer();
    let simulated = plans.iter().filter(|plan| plan.on == Target::Sim);
    simulated.map(|plan| (plan, Needs::of(plan, stack))).try_for_each(|(plan, needs)| {
        needs.fit(host).map_err(|why| {
            CallError::Other(format!(
                "study `{}` on {} CPUs has {} tasks at the same time: {why}",
                plan.study.name(),
                plan.cpus,
                needs.tasks
            ))
        })
    })
}

/// Returns whether this computer has the memory for runs of any of the simulated plans on all its
/// CPUs.
pub(crate) fn fit_together(plans: &[Plan]) -> bool {
    let (stack, host) = (stack_needs(), Host::of_this_computer());
    plans.iter().all(|plan| Needs::of_each(plan, host_cpus(), stack).fit(host).is_ok())
}

impl Needs {
    /// Returns the requirements of all concurrent runs of a plan.
    fn of(plan: &Plan, stack: StackNeeds) -> Self {
        Self::of_each(plan, plan.at_once(), stack)
    }

    /// Returns the requirements of `at_once` runs of a plan.
    fn of_each(plan: &Plan, at_once: usize, stack: StackNeeds) -> Self {
        let tasks = plan.study.tasks(&plan.params, plan.cpus);
        Self::of_runs(at_once as u64, plan.cpus as u64, tasks, stack)
    }

    /// Returns the requirements of `at_once` runs on `cpus` CPUs, each with `tasks` tasks of the
    /// study.
    fn of_runs(at_once: u64, cpus: u64, tasks: u64, stack: StackNeeds) -> Self {
        let tasks = at_once * (tasks + OWN_TASKS * cpus);
        let resident_bytes = BASE_BYTES + at_once * cpus * CPU_BYTES + tasks * TASK_BYTES;
        Self {
            tasks,
            resident_bytes,
            // A table that grows is there twice while it is copied.
            address_bytes: 2 * resident_bytes + tasks * stack.address_bytes,
            mappings: OTHER_MAPPINGS + tasks * stack.mappings,
        }
    }

    /// Returns an error with the missing resource, the available amount, and advice.
    fn fit(self, host: Host) -> Result<(), String> {
        let advice = "use fewer CPUs or processes";
        let mib = |bytes: u64| bytes.div_ceil(1 << 20);
        if self.resident_bytes > host.memory_bytes {
            let (wanted, there) = (mib(self.resident_bytes), mib(host.memory_bytes));
            return Err(format!(
                "about {wanted} MiB of memory are needed and {there} are available; {advice}"
            ));
        }
        if self.address_bytes > host.address_bytes {
            let (wanted, there) = (mib(self.address_bytes), mib(host.address_bytes));
            return Err(format!(
                "about {wanted} MiB of address space are needed and {there} are allowed; raise the \
                 limit (ulimit -v) or {advice}"
            ));
        }
        if self.mappings > host.mappings {
            let (wanted, there) = (self.mappings, host.mappings);
            return Err(format!(
                "{wanted} mappings for stacks and their guard pages are needed and {there} are \
                 allowed; raise vm.max_map_count, use Linux 6.13 or later, where guard pages need \
                 no mapping, or {advice}"
            ));
        }
        Ok(())
    }
}

impl Host {
    fn of_this_computer() -> Self {
        let memory = crate::host::available_bytes().unwrap_or(u64::MAX);
        let mappings = read_number(Path::new("/proc/sys/vm/max_map_count")).unwrap_or(u64::MAX);
        Self {
            memory_bytes: memory.min(group_bytes().unwrap_or(u64::MAX)),
            address_bytes: address_bytes().unwrap_or(u64::MAX),
            mappings,
        }
    }
}

/// Returns the address space that this process may still use. `None` without a limit.
fn address_bytes() -> Option<u64> {
    // tidy: opened: a file of /proc or /sys
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let soft = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    let limit: u64 = soft.split_whitespace().next()?.parse().ok()?;
    // tidy: opened: a file of /proc or /sys
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:"))?;
    let used_kib: u64 = size.split_whitespace().next()?.parse().ok()?;
    Some(limit.saturating_sub(used_kib << 10))
}

/// Returns the memory left in this process's control group and those above it. `None` if none of
/// them has a known limit.
fn group_bytes() -> Option<u64> {
    // tidy: opened: a file of /proc or /sys
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let left = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (controllers, path) = (parts.nth(1)?, parts.next()?);
        let (root, limit, usage) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max", "memory.current"),
            named if named.split(',').any(|name| name == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes")
            }
            _ => return None,
        };
        let own = Path::new(root).join(path.trim_start_matches('/'));
        let of = |group: &Path| {
            let limit = read_number(&group.join(limit))?;
            Some(limit.saturating_sub(read_number(&group.join(usage))?))
        };
        own.ancestors().take_while(|group| group.starts_with(root)).filter_map(of).min()
    });
    left.min()
}

fn read_number(path: &Path) -> Option<u64> {
    // tidy: opened: a file of /proc or /sys
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STACK: StackNeeds = StackNeeds { address_bytes: 132 << 10, mappings: 2 };
    const LARGE: Host =
        Host { memory_bytes: u64::MAX, address_bytes: u64::MAX, mappings: u64::MAX };

    fn needs(stack: StackNeeds) -> Needs {
        Needs::of_runs(1, 4096, 4096 * 8194, stack)
    }

    #[test]
    fn what_is_too_little_is_told_with_both_figures_and_a_way_out() {
        let needs = needs(STACK);
        assert!(needs.tasks >= 4096 * 8192, "{needs:?}");
        assert_eq!(needs.fit(LARGE), Ok(()));
        let why = |host| needs.fit(host).unwrap_err();
        let memory = why(Host { memory_bytes: 24 << 30, ..LARGE });
        assert!(memory.contains("24576 are available; use fewer CPUs"), "{memory}");
        let address = why(Host { address_bytes: 1 << 30, ..LARGE });
        assert!(address.contains("1024 are allowed; raise the limit"), "{address}");
        let mappings = why(Host { mappings: 65_530, ..LARGE });
        assert!(mappings.contains("65530 are allowed; raise vm.max_map_count"), "{mappings}");
    }

    #[test]
    fn guards_without_mappings_need_none() {
        let needs = needs(StackNeeds { mappings: 0, ..STACK });
        assert_eq!(needs.fit(Host { mappings: 65_530, ..LARGE }), Ok(()));
    }
}
