//! The names that policies have in a `study.toml`.

use mmscale_mm::lru::LruPolicy;
use mmscale_mm::page_alloc::PcpPolicy;
use mmscale_mm::smp::CallPolicy;
use mmscale_mm::space::ExitPolicy;
use mmscale_mm::upkeep::TickPolicy;
use mmscale_system::Present;
use serde::{Deserialize, Deserializer, de::Error};

/// One of several names, each of which stands for a value.
fn named<'de, D, T, const N: usize>(source: D, names: [(&str, T); N]) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
{
    let given = String::deserialize(source)?;
    let known = names.each_ref().map(|(name, _)| *name).join(", ");
    let found = names.into_iter().find(|(name, _)| *name == given);
    let what = || D::Error::custom(format!("no policy `{given}`; it is one of {known}"));
    found.map(|(_, value)| value).ok_or_else(what)
}

/// The upkeep tick.
pub(crate) fn tick<'de, D: Deserializer<'de>>(source: D) -> Result<TickPolicy, D::Error> {
    let names = [
        ("stock", TickPolicy::Stock),
        ("posted", TickPolicy::Posted),
        ("phased", TickPolicy::Phased),
    ];
    named(source, names)
}

/// How folios get onto their lists.
pub(crate) fn lru<'de, D: Deserializer<'de>>(source: D) -> Result<LruPolicy, D::Error> {
    let names =
        [("stock", LruPolicy::Stock), ("freeze", LruPolicy::Freeze), ("lazy", LruPolicy::Lazy)];
    named(source, names)
}

/// Whether an op has its pages moved.
pub(crate) fn bind<'de, D: Deserializer<'de>>(source: D) -> Result<Present, D::Error> {
    named(source, [("stay", Present::Stay), ("move", Present::Move)])
}

/// How pages travel between CPUs and zones.
pub(crate) fn caches<'de, D: Deserializer<'de>>(source: D) -> Result<PcpPolicy, D::Error> {
    named(
        source,
        [
            ("stock", PcpPolicy::Stock),
            ("posted", PcpPolicy::Posted),
            ("blockmap", PcpPolicy::Blockmap),
        ],
    )
}

/// How CPUs call one another.
pub(crate) fn calls<'de, D: Deserializer<'de>>(source: D) -> Result<CallPolicy, D::Error> {
    let names = [
        ("stock", CallPolicy::Stock),
        ("posted", CallPolicy::Posted),
        ("requests", CallPolicy::Requests),
    ];
    named(source, names)
}

/// How an address space is emptied at its end.
pub(crate) fn exit<'de, D: Deserializer<'de>>(source: D) -> Result<ExitPolicy, D::Error> {
    let names = [
        ("stock", ExitPolicy::Stock),
        ("posted", ExitPolicy::Posted),
        ("claims", ExitPolicy::Claims),
    ];
    named(source, names)
}
