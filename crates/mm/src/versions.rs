//! Versions of Linux: since when it has which policy.
//!
//! [`HISTORIES`] lists every change of Linux for which the memory manager has both sides as
//! policies of a mechanism. [`policies_of`] selects the consistent set of one version: mechanisms
//! without a history have their default, which is Linux too. The same table labels live kernels,
//! by their release string.
//!
//! [`GAPS`] lists changes of Linux for which the memory manager has one side only, so that other
//! versions are simulated with a mechanism that they do not have. Every run of such a version says
//! so. `cargo run -- list linux` prints both tables.
//!
//! A source is a commit of Linux, or the release whose source has the change.

use crate::policy::{MECHANISMS, Mechanism};
use core::fmt;
use mmscale_arch::About;

/// A version of Linux: `6.18` of `6.18.44-rt`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Version {
    /// The first number.
    pub major: u16,
    /// The second number.
    pub minor: u16,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl Version {
    /// Creates a version.
    pub const fn new(major: u16, minor: u16) -> Self {
        Self { major, minor }
    }
    /// Returns whether a release had this number, from [`OLDEST`] to [`NEWEST`].
    pub fn is_known(self) -> bool {
        (OLDEST..=NEWEST).contains(&self) && self.minor <= LAST_MINOR
    }
    /// Returns the version at the start of a release string such as `6.18.44-rt`; `None` if the
    /// string does not start with two numbers.
    pub fn of_release(release: &str) -> Option<Self> {
        let mut parts = release.trim().splitn(3, '.');
        let (major, rest) = (parts.next()?, parts.next()?);
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        Some(Self::new(major.parse().ok()?, rest[..digits].parse().ok()?))
    }
}

/// The versions that lists show, most of which have long-term support. All versions from [`OLDEST`]
/// to [`NEWEST`] can be chosen for a simulated machine.
pub const VERSIONS: [Version; 6] = [v(5, 10), v(5, 15), v(6, 1), v(6, 6), v(6, 12), v(6, 18)];

/// The oldest version whose changes the tables below have.
pub const OLDEST: Version = v(5, 0);

/// The newest version that was compared with the tables below, by its counts under an emulator. No
/// change after 6.19 is in them.
pub const NEWEST: Version = v(7, 3);

/// The last minor version of the major versions between [`OLDEST`] and [`NEWEST`]: 5.19 and 6.19.
const LAST_MINOR: u16 = 19;

const fn v(major: u16, minor: u16) -> Version {
    Version::new(major, minor)
}

/// One change of a mechanism.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// The first version that has the policy.
    pub since: Version,
    /// The policy of the mechanism since that version.
    pub policy: &'static str,
    /// The commit or release that is the evidence.
    pub source: &'static str,
}

/// All changes of one mechanism.
#[derive(Clone, Copy, Debug)]
pub struct History {
    /// The mechanism's key.
    pub key: &'static str,
    /// The policy before the first step.
    pub first: &'static str,
    /// The changes, oldest first.
    pub steps: &'static [Step],
}

const fn step(since: Version, policy: &'static str, source: &'static str) -> Step {
    Step { since, policy, source }
}

/// The mechanisms that changed, with all their changes.
pub const HISTORIES: &[History] = &[
    History {
        key: "high",
        first: "batches",
        steps: &[
            step(
                v(5, 14),
                "watermark",
                "b92ca18e8ca5 mm/page_alloc: disassociate the pcp->high from pcp->batch",
            ),
            step(v(6, 7), "stock", "51a755c56dc0 mm: tune PCP high automatically"),
        ],
    },
    History {
        key: "batch",
        first: "half",
        steps: &[step(v(4, 19), "stock", "d8a759b57035 mm, page_alloc: double zone's batchsize")],
    },
    History {
        key: "bulk",
        first: "whole",
        steps: &[step(
            v(6, 19),
            "stock",
            "6.19: mm/page_alloc: batch page freeing in free_frozen_page_commit, decay_pcp_high",
        )],
    },
    History {
        key: "check",
        first: "refill",
        steps: &[step(
            v(6, 3),
            "stock",
            "6.3: mm, page_alloc: reduce page alloc/free sanity checks",
        )],
    },
    History {
        key: "orders",
        first: "zone",
        steps: &[step(
            v(5, 14),
            "stock",
            "44042b449872 mm/page_alloc: allow high-order pages to be stored on the per-cpu lists",
        )],
    },
    History {
        key: "folios",
        first: "fifteen",
        steps: &[step(v(6, 9), "stock", "9cecde80aae0 mm: increase folio batch size")],
    },
    History {
        key: "vma-locks",
        first: "none",
        steps: &[
            step(
                v(6, 4),
                "anonymous",
                "0bff0aaea03e x86/mm: try VMA lock-based page fault handling first",
            ),
            step(
                v(6, 6),
                "faults",
                "1235ccd05b6d mm: handle swap page faults under per-VMA lock; 6.6: mm: handle \
                 faults of files under the VMA lock",
            ),
            step(v(6, 17), "stock", "6.17: mm: use per_vma lock for MADV_DONTNEED"),
        ],
    },
    History {
        key: "rwsem",
        first: "no-handoff",
        steps: &[
            step(
                v(5, 3),
                "readers-spin",
                "5.3: locking/rwsem: Implement lock handoff, and Enable readers spinning on writer",
            ),
            step(v(5, 11), "first-wakes", "5.11: locking/rwsem: Remove reader optimistic spinning"),
            step(
                v(5, 19),
                "stock",
                "5.19: locking/rwsem: Conditionally wake waiters in reader/writer slowpaths",
            ),
        ],
    },
    History {
        key: "rss",
        first: "tasks",
        steps: &[
            step(v(6, 2), "four", "f1a7941243c1 mm: convert mm's rss stats into percpu_counter"),
            step(
                v(6, 6),
                "stock",
                "14ef95be6f55 kernel/fork: group allocation/free of per-cpu counters for mm struct",
            ),
        ],
    },
    History {
        key: "commit",
        first: "small",
        steps: &[step(
            v(5, 9),
            "stock",
            "56f3547bfa4d mm: adjust vm_committed_as_batch according to vm overcommit policy",
        )],
    },
    History {
        key: "charge-stock",
        first: "one",
        steps: &[step(v(6, 16), "stock", "6.16: memcg: multi-memcg percpu charge cache")],
    },
    History {
        key: "stat-threshold",
        first: "none",
        steps: &[
            step(v(5, 16), "uncapped", "11192d9c124d memcg: flush stats only if updated"),
            step(
                v(6, 0),
                "global",
                "873f64b791a2 mm/memcontrol.c: remove the redundant updating of \
                 stats_flush_threshold",
            ),
            step(
                v(6, 8),
                "stock",
                "8d59d2214c23 mm: memcg: make stats flushing threshold per-memcg",
            ),
        ],
    },
    History {
        key: "unmap",
        first: "drain",
        steps: &[step(
            v(6, 14),
            "stock",
            "1aa43598c03b mm: remove unnecessary calls to lru_add_drain",
        )],
    },
    History {
        key: "shootdown",
        first: "in-turn",
        steps: &[step(
            v(5, 13),
            "stock",
            "4ce94eabac16 x86/mm/tlb: Flush remote and local TLBs concurrently",
        )],
    },
    History {
        key: "broadcast",
        first: "none",
        steps: &[step(
            v(6, 15),
            "stock",
            "6.15: x86/mm: Enable broadcast TLB invalidation for multi-threaded processes",
        )],
    },
    // Before 5.17 a bit of the handle was locked, and no word that all CPUs change.
    History {
        key: "zs-lookup",
        first: "index",
        steps: &[
            step(
                v(5, 17),
                "stock",
                "5.17: zsmalloc: replace per zpage lock with pool->migrate_lock",
            ),
            step(
                v(6, 2),
                "pool",
                "6.2: zsmalloc: consolidate zs_pool's migrate_lock and size_class's locks",
            ),
            step(v(6, 11), "stock", "6.11: mm/zsmalloc: change back to per-size_class lock"),
        ],
    },
    History {
        key: "exit",
        first: "stock",
        steps: &[step(
            v(6, 18),
            "posted",
            "6.18: mm/oom_kill: the OOM reaper traverses the VMA maple tree in reverse order",
        )],
    },
];

impl History {
    /// Returns the history of a mechanism; `None` if it has not changed.
    pub fn of(key: &str) -> Option<&'static Self> {
        HISTORIES.iter().find(|history| history.key == key)
    }
    /// Returns the policy of `version`.
    pub fn policy(&self, version: Version) -> &'static str {
        let steps = self.steps.iter().rev();
        steps.into_iter().find(|step| step.since <= version).map_or(self.first, |step| step.policy)
    }
    /// Returns the versions that have `policy`: the first, and the first that no longer has it; the
    /// last ones, if it was left and taken up again. `None` if no version has it: a policy that was
    /// posted, or one of this project.
    pub fn span(&self, policy: &str) -> Option<(Option<Version>, Option<Version>)> {
        let begins = [(None, self.first)].into_iter();
        let begins = begins.chain(self.steps.iter().map(|step| (Some(step.since), step.policy)));
        let has = |(_, name): (_, &str)| name == policy;
        let place = begins.clone().enumerate().filter(|(_, of)| has(*of)).last()?.0;
        let (since, _) = begins.clone().nth(place)?;
        Some((since, begins.clone().nth(place + 1).and_then(|(since, _)| since)))
    }
}

/// Returns the version of the last change of the tables that `version` has: all versions since then
/// are simulated alike. [`OLDEST`] if it has none.
pub fn unchanged_since(version: Version) -> Version {
    let steps = HISTORIES.iter().flat_map(|history| history.steps).map(|step| step.since);
    let changes = steps.chain(GAPS.iter().map(|gap| gap.at));
    changes.filter(|change| *change <= version).max().map_or(OLDEST, |last| last.max(OLDEST))
}

/// Returns the policy of every mechanism in `version`, in the order of [`MECHANISMS`].
pub fn policies_of(
    version: Version,
) -> impl Iterator<Item = (&'static Mechanism, &'static About)> + Clone {
    MECHANISMS.iter().map(move |mechanism| {
        let name = History::of(mechanism.key).map(|history| history.policy(version));
        let named = name.and_then(|name| mechanism.policy(name));
        (mechanism, named.unwrap_or_else(|| mechanism.default()))
    })
}

/// A change of Linux of which the memory manager has one side only.
#[derive(Clone, Copy, Debug)]
pub struct Gap {
    /// The version of the change.
    pub at: Version,
    /// Whether it is the versions since then that are not modelled, or those before.
    pub missing: Missing,
    /// The mechanism of the versions that are not modelled.
    pub what: &'static str,
    /// The commit or release that is the evidence.
    pub source: &'static str,
}

/// The versions of a [`Gap`] that are not modelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Missing {
    /// Those before the change.
    Before,
    /// Those since the change.
    Since,
}

const fn before(at: Version, what: &'static str, source: &'static str) -> Gap {
    Gap { at, missing: Missing::Before, what, source }
}

/// The changes that are not modelled.
pub const GAPS: &[Gap] = &[
    before(
        v(5, 11),
        "one LRU lock for all memory cgroups of a node",
        "6168d0da2b47 mm/lru: replace pgdat lru_lock with lruvec lock",
    ),
    before(
        v(5, 18),
        "zone->lock is held while the pages of a block that no page cache has are checked",
        "3313204c8ad5 mm: call check_new_pages() while zone spinlock is not held",
    ),
    before(
        v(5, 16),
        "changes of groups' statistics are added to shared counters in batches of 32 (before \
         5.13), or each 64th of a CPU queues a flush (5.15)",
        "2d146aa3aa84 mm: memcontrol: switch to rstat; aa48e47e3906 memcg: infrastructure to flush \
         memcg stats",
    ),
    before(v(6, 1), "VMAs are in a red-black tree and a list", "6.1: the maple tree"),
    Gap {
        at: v(6, 14),
        missing: Missing::Since,
        what: "a CPU stays in the mask of an address space until a flush finds it elsewhere",
        source: "209954cbc7d0 x86/mm/tlb: Update mm_cpumask lazily",
    },
];

impl Gap {
    /// Returns whether `version` has the mechanism that is not modelled.
    pub fn is_of(&self, version: Version) -> bool {
        (version < self.at) == (self.missing == Missing::Before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::String;
    use alloc::vec::Vec;

    /// The policies of `version` that are not the default.
    fn set(version: Version) -> String {
        let named =
            policies_of(version).filter(|(mechanism, policy)| *policy != mechanism.default());
        let named = named.map(|(mechanism, policy)| format!("{}={}", mechanism.key, policy.name));
        named.collect::<Vec<_>>().join(",")
    }

    #[test]
    fn each_version_has_its_own_set_of_policies() {
        let all = VERSIONS.map(|version| format!("{version} {}", set(version)));
        let expected = [
            "5.10 folios=fifteen,high=batches,bulk=whole,check=refill,orders=zone,broadcast=none,\
             shootdown=in-turn,unmap=drain,vma-locks=none,rwsem=readers-spin,rss=tasks,\
             charge-stock=one,stat-threshold=none,zs-lookup=index",
            "5.15 folios=fifteen,high=watermark,bulk=whole,check=refill,broadcast=none,\
             unmap=drain,vma-locks=none,rwsem=first-wakes,rss=tasks,charge-stock=one,\
             stat-threshold=none,zs-lookup=index",
            "6.1 folios=fifteen,high=watermark,bulk=whole,check=refill,broadcast=none,\
             unmap=drain,vma-locks=none,rss=tasks,charge-stock=one,stat-threshold=global",
            "6.6 folios=fifteen,high=watermark,bulk=whole,broadcast=none,unmap=drain,\
             vma-locks=faults,charge-stock=one,stat-threshold=global,zs-lookup=pool",
            "6.12 bulk=whole,broadcast=none,unmap=drain,vma-locks=faults,charge-stock=one",
            "6.18 bulk=whole,exit=posted",
        ];
        assert_eq!(all, expected);
        assert_eq!(set(NEWEST), "exit=posted");
    }

    /// A page cache's `high` adapts since 6.7, and all faults take VMA locks since 6.6.
    #[test]
    fn a_version_between_two_of_the_list_has_the_changes_up_to_it() {
        for (version, same, since) in [
            (v(7, 1), v(6, 19), v(6, 19)),
            (v(6, 5), v(6, 4), v(6, 4)),
            (v(5, 12), v(5, 11), v(5, 11)),
            (v(6, 10), v(6, 9), v(6, 9)),
            (v(5, 10), v(5, 9), v(5, 9)),
        ] {
            assert_eq!(set(version), set(same), "{version}");
            assert_eq!(unchanged_since(version), since, "{version}");
            assert!(version.is_known(), "{version}");
        }
        let high = |version| History::of("high").expect("it changed").policy(version);
        assert_eq!([v(6, 1), v(6, 6), v(6, 7)].map(high), ["watermark", "watermark", "stock"]);
        for unknown in [v(4, 20), v(5, 20), v(6, 20), v(7, 4)] {
            assert!(!unknown.is_known(), "{unknown}");
        }
    }

    /// Any version can be named. Each has the policies of the last change at or before it.
    #[test]
    fn policies_change_with_the_versions_of_the_table_and_with_no_other() {
        let minors = |major| (0..=LAST_MINOR).map(move |minor| v(major, minor));
        let all: Vec<_> = (OLDEST.major..=NEWEST.major)
            .flat_map(minors)
            .filter(|version| version.is_known())
            .collect();
        assert_eq!(all.len(), 20 + 20 + 4);
        let is_change = |version| {
            HISTORIES.iter().flat_map(|history| history.steps).any(|step| step.since == version)
        };
        for pair in all.windows(2) {
            let [before, version] = [pair[0], pair[1]];
            assert_eq!(set(before) != set(version), is_change(version), "{version}");
            assert_eq!(set(version), set(unchanged_since(version)), "{version}");
            let is_edge = is_change(version) || GAPS.iter().any(|gap| gap.at == version);
            assert_eq!(unchanged_since(version) == version, is_edge, "{version}");
        }
    }

    #[test]
    fn histories_name_mechanisms_and_policies_and_go_forward() {
        for History { key, first, steps } in HISTORIES {
            let mechanism = Mechanism::of(key).expect(key);
            let mut names: Vec<_> = steps.iter().map(|step| step.policy).collect();
            names.insert(0, first);
            for (place, name) in names.iter().enumerate() {
                assert!(mechanism.policy(name).is_some(), "{key}={name}");
                assert!(place == 0 || names[place - 1] != *name, "{key}={name} changes nothing");
            }
            assert!(steps.is_sorted_by(|a, b| a.since < b.since), "{key}");
            assert!(steps.iter().all(|step| !step.source.is_empty()), "{key}");
            assert!(steps.iter().all(|step| step.since <= NEWEST), "{key}: NEWEST is older");
        }
    }

    #[test]
    fn a_policy_has_the_span_of_versions_that_have_it() {
        let span = |key, policy| History::of(key).expect("it changed").span(policy);
        assert_eq!(span("exit", "stock"), Some((None, Some(v(6, 18)))));
        assert_eq!(span("exit", "posted"), Some((Some(v(6, 18)), None)));
        assert_eq!(span("exit", "claims"), None);
        assert_eq!(span("vma-locks", "faults"), Some((Some(v(6, 6)), Some(v(6, 17)))));
    }

    #[test]
    fn a_release_string_leads_to_its_version() {
        let of = |release| Version::of_release(release);
        assert_eq!(of("6.18.44-fc-v782\n"), Some(v(6, 18)));
        assert_eq!(of("6.1.0-rc3+"), Some(v(6, 1)));
        assert_eq!(of("7.0-rc5"), Some(v(7, 0)));
        for wrong in ["", "6", "six.one", "6.x", "-1.2"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_gap_is_of_the_versions_on_its_side() {
        let gaps = |version| GAPS.iter().filter(|gap| gap.is_of(version)).count();
        assert_eq!(VERSIONS.map(gaps), [4, 3, 0, 0, 0, 1]);
        assert!(GAPS.iter().all(|gap| gap.at <= NEWEST));
    }
}
