//! Names of paths and locks that only the program on the machine knows: those of a recording.

use mmscale_arch::{LockClass, LockInstance, NamedLock};
use mmscale_document::LockName;
use std::collections::BTreeSet;

/// Names of a program's own call paths and locks.
///
/// A lock with a name is of class [`LockClass::Other`]; the number of its
/// [`LockInstance::Numbered`] is that of its name.
#[derive(Clone, Debug, Default)]
pub struct Names {
    paths: Vec<Vec<String>>,
    locks: Vec<LockName>,
    /// The classes of locks, sorted, and of each lock the number of its class.
    classes: Vec<String>,
    class_of: Vec<u32>,
}

impl Names {
    /// Returns names of call paths by their numbers, outermost function first, and of locks by
    /// theirs.
    pub fn new(paths: Vec<Vec<String>>, locks: Vec<LockName>) -> Self {
        let classes: BTreeSet<&String> = locks.iter().map(|lock| &lock.class).collect();
        let classes: Vec<String> = classes.into_iter().cloned().collect();
        let number = |lock: &LockName| classes.partition_point(|class| *class < lock.class) as u32;
        Self { class_of: locks.iter().map(number).collect(), paths, locks, classes }
    }
    pub(crate) fn paths(&self) -> &[Vec<String>] {
        &self.paths
    }
    fn number(lock: NamedLock) -> Option<usize> {
        match lock {
            NamedLock { class: LockClass::Other, instance: LockInstance::Numbered(number) } => {
                Some(number as usize)
            }
            _ => None,
        }
    }
    pub(crate) fn lock(&self, lock: NamedLock) -> Option<&LockName> {
        self.locks.get(Self::number(lock)?)
    }
    pub(crate) fn class_of(&self, lock: NamedLock) -> Option<u32> {
        self.class_of.get(Self::number(lock)?).copied()
    }
    pub(crate) fn class(&self, number: u32) -> &str {
        &self.classes[number as usize]
    }
}

/// A class of locks: one of the machine's, or one of [`Names`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Class {
    Of(LockClass),
    /// The number of its name.
    Named(u32),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_with_a_number_has_the_name_and_the_class_of_that_number() {
        let lock = |class: &str, name: &str| LockName { class: class.into(), name: name.into() };
        let locks =
            vec![lock("zone", "zone 1"), lock("lruvec", "lruvec a"), lock("zone", "zone 0")];
        let names = Names::new(vec![], locks);
        let of = |class, instance| NamedLock { class, instance };
        let numbered = |number| of(LockClass::Other, LockInstance::Numbered(number));
        assert_eq!(names.lock(numbered(1)), Some(&lock("lruvec", "lruvec a")));
        let classes = [0, 1, 2].map(|number| names.class_of(numbered(number)));
        assert_eq!(classes, [Some(1), Some(0), Some(1)]);
        assert_eq!((names.class(0), names.class(1)), ("lruvec", "zone"));
        for unknown in [
            numbered(3),
            of(LockClass::Zone, LockInstance::Numbered(1)),
            of(LockClass::Other, LockInstance::Unnamed),
        ] {
            assert_eq!((names.lock(unknown), names.class_of(unknown)), (None, None));
        }
    }
}
