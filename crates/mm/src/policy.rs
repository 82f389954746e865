//! All mechanisms that have policies, with their fields in [`MmConfig`].
//!
//! A mechanism's enum declares its policies ([`policies!`](mmscale_arch::policies)); this list adds
//! the field of the memory manager's configuration. Arms, the command line, documents and the test
//! that runs every policy read this list, so a declared policy is in all of them. `cargo xtask
//! tidy` finds a mechanism that is missing here.
//!
//! Other switches of [`MmConfig`] are parameters: what an administrator sets
//! ([`HugePages`](crate::space::HugePages)), what an embedder needs
//! ([`Records`](mmscale_frames::page_alloc::Records), [`OomPolicy`](crate::oom::OomPolicy)), and
//! what tests use ([`Requeue`](crate::vmstat_work::Requeue), [`Drains`](crate::oom::Drains)).
//!
//! Which policies a version of Linux has is in [`versions`](crate::versions).

use crate::lru::{FoliosPolicy, LruPolicy, ReleasePolicy};
use crate::memcg::{StockPolicy, ThresholdPolicy};
use crate::mm::MmConfig;
use crate::oom::OomReadPolicy;
use crate::pgtable::RssPolicy;
use crate::smp::{BroadcastPolicy, CallPolicy, GatherPolicy, ShootdownPolicy};
use crate::space::{CommitPolicy, ExitPolicy, ImapPolicy, RetryPolicy, UnmapPolicy, VmaLockPolicy};
use crate::vmstat_work::TickPolicy;
use crate::zsmalloc::{FreePolicy, LookupPolicy, PagesPolicy};
use mmscale_arch::sync::RwsemPolicy;
use mmscale_arch::{About, Policy};
use mmscale_frames::page_alloc::{
    BatchPolicy, BulkHold, CachedOrders, HighPolicy, PageCheck, PcpPolicy, ZoneLists,
};

/// A mechanism of the memory manager, and where its policy is in a configuration.
#[derive(Clone, Copy, Debug)]
pub struct Mechanism {
    /// Its key in arms and on the command line.
    pub key: &'static str,
    /// A short description.
    pub summary: &'static str,
    /// Its policies; the first is the default: Linux.
    pub policies: &'static [About],
    get: fn(&MmConfig) -> usize,
    set: fn(&mut MmConfig, usize),
}

/// A mechanism: its enum, and the field of [`MmConfig`] that holds its policy.
macro_rules! mechanism {
    ($Policy:ty, $($field:ident).+) => {
        Mechanism {
            key: <$Policy>::KEY,
            summary: <$Policy>::SUMMARY,
            policies: <$Policy>::ABOUT,
            get: |config| config.$($field).+.place(),
            set: |config, place| config.$($field).+ = <$Policy>::at(place),
        }
    };
}

/// Every mechanism.
pub const MECHANISMS: &[Mechanism] = &[
    mechanism!(TickPolicy, tick),
    mechanism!(LruPolicy, lru),
    mechanism!(ReleasePolicy, release),
    mechanism!(FoliosPolicy, folios),
    mechanism!(PcpPolicy, alloc.caches),
    mechanism!(HighPolicy, alloc.high),
    mechanism!(BatchPolicy, alloc.batch),
    mechanism!(BulkHold, alloc.hold),
    mechanism!(PageCheck, alloc.check),
    mechanism!(CachedOrders, alloc.orders),
    mechanism!(ZoneLists, alloc.lists),
    mechanism!(CallPolicy, smp.policy),
    mechanism!(BroadcastPolicy, smp.broadcast),
    mechanism!(ShootdownPolicy, smp.shootdown),
    mechanism!(ExitPolicy, space.exit),
    mechanism!(UnmapPolicy, space.unmap),
    mechanism!(GatherPolicy, smp.gather),
    mechanism!(VmaLockPolicy, space.vma_locks),
    mechanism!(RetryPolicy, space.retry),
    mechanism!(RwsemPolicy, space.rwsem),
    mechanism!(ImapPolicy, space.imap),
    mechanism!(RssPolicy, space.rss),
    mechanism!(CommitPolicy, space.commit),
    mechanism!(OomReadPolicy, oom.read),
    mechanism!(StockPolicy, charge_stock),
    mechanism!(ThresholdPolicy, stat_threshold),
    mechanism!(LookupPolicy, swap.zs.lookup),
    mechanism!(PagesPolicy, swap.zs.pages),
    mechanism!(FreePolicy, swap.zs.free),
];

impl Mechanism {
    /// Returns the mechanism of a key; `None` if there is none.
    pub fn of(key: &str) -> Option<&'static Self> {
        MECHANISMS.iter().find(|mechanism| mechanism.key == key)
    }
    /// The policy of a memory manager's default configuration: Linux.
    pub fn default(&self) -> &'static About {
        &self.policies[0]
    }
    /// Returns the policy of a name; `None` if this mechanism has no such policy.
    pub fn policy(&self, name: &str) -> Option<&'static About> {
        self.policies.iter().find(|policy| policy.name == name)
    }
    /// The policy in a configuration.
    pub fn chosen(&self, config: &MmConfig) -> &'static About {
        &self.policies[(self.get)(config)]
    }
    /// Sets a policy of this mechanism in a configuration.
    ///
    /// # Panics
    /// If `policy` belongs to another mechanism.
    pub fn choose(&self, config: &mut MmConfig, policy: &About) {
        let place = self.policies.iter().position(|own| own == policy);
        let place = place.unwrap_or_else(|| {
            panic!("`{}` is no policy of the mechanism `{}`", policy.name, self.key)
        });
        (self.set)(config, place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::{String, ToString};
    use alloc::vec::Vec;
    use mmscale_frames::page_alloc::MemoryMap;

    fn config() -> MmConfig {
        MmConfig::new(MemoryMap::single(1 << 16), TickPolicy::default())
    }

    /// A configuration as text, for comparisons.
    fn shown(config: &MmConfig) -> String {
        alloc::format!("{config:?}")
    }

    #[test]
    fn each_policy_reaches_its_own_field_and_no_other() {
        for mechanism in MECHANISMS {
            let mut all = Vec::new();
            for policy in mechanism.policies {
                let mut changed = config();
                mechanism.choose(&mut changed, policy);
                assert_eq!(mechanism.chosen(&changed), policy, "{}", mechanism.key);
                let others = MECHANISMS.iter().filter(|other| other.key != mechanism.key);
                others.for_each(|other| assert_eq!(other.chosen(&changed), other.default()));
                all.push(shown(&changed));
            }
            assert_eq!(all[0], shown(&config()), "{}: the first is the default", mechanism.key);
            all.sort();
            all.dedup();
            assert_eq!(all.len(), mechanism.policies.len(), "{}", mechanism.key);
        }
    }

    /// Lists print help texts unchanged, in 72 columns, and names are words of a command line.
    #[test]
    fn names_are_words_and_help_is_plain_text() {
        let word = |name: &str| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '-')
        };
        let mut keys: Vec<_> = MECHANISMS.iter().map(|mechanism| mechanism.key).collect();
        for mechanism in MECHANISMS {
            assert!(word(mechanism.key) && !mechanism.summary.is_empty(), "{}", mechanism.key);
            for (place, About { name, help }) in mechanism.policies.iter().enumerate() {
                let of = alloc::format!("{}={name}", mechanism.key);
                assert!(word(name) && help.ends_with('.') && help.len() > 20, "{of}: {help}");
                assert!(!help.contains('[') && !help.contains("  "), "{of}: {help}");
                let same = |other: &About| other.name == *name;
                assert_eq!(mechanism.policies.iter().position(same), Some(place), "{of}: twice");
            }
        }
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), MECHANISMS.len());
    }

    #[test]
    fn a_name_leads_to_its_policy() {
        assert_eq!(TickPolicy::from_name("phased"), Some(TickPolicy::Phased));
        assert_eq!(TickPolicy::from_name("lazy"), None);
        assert_eq!(
            Mechanism::of("lru").and_then(|lru| lru.policy("lazy")).map(|p| p.name),
            Some("lazy")
        );
        assert!(Mechanism::of("lruu").is_none());
        assert_eq!(LruPolicy::Lazy.name().to_string(), LruPolicy::ABOUT[2].name);
    }

    #[test]
    #[should_panic(expected = "`phased` is no policy of the mechanism `lru`")]
    fn a_policy_of_another_mechanism_is_refused() {
        let lru = Mechanism::of("lru").expect("there is one");
        let tick = Mechanism::of("tick").expect("there is one");
        lru.choose(&mut config(), tick.policy("phased").expect("there is one"));
    }
}
