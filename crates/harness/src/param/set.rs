//! The parameters of a study in one declaration: names, units, defaults, ranges, help texts, and
//! the struct that a workload reads.

use super::{ParamSpec, Params};

/// A set of parameters, declared by [`params!`](crate::params).
pub trait ParamSet: Clone + std::fmt::Debug + Send + Sync + 'static {
    /// Names of the parameters that do not apply to the live kernel.
    const NOT_LIVE: &'static [&'static str];
    /// Returns the declarations, in the order in which they are listed.
    fn specs() -> Vec<ParamSpec>;
    /// Reads the values, which were checked against [`ParamSet::specs`].
    fn read(params: &Params) -> Self;
}

/// An enum whose variants have names: the values of a choice. Declared by [`names!`](crate::names).
pub trait Named: Copy + PartialEq + std::fmt::Debug + Send + Sync + 'static {
    /// All names, the default first.
    const NAMES: &'static [&'static str];
    /// Returns the variant with the given name.
    ///
    /// # Panics
    /// If no variant has the name, which is impossible for a checked parameter.
    fn named(name: &str) -> Self;
    /// Returns the name of this variant.
    fn name(self) -> &'static str {
        let own = |name: &&&'static str| Self::named(name) == self;
        Self::NAMES.iter().find(own).expect("each variant has a name")
    }
}

/// Declares an enum and the names of its variants: `names! { pub enum Beside { None = "none" } }`.
#[macro_export]
macro_rules! names {
    ($(#[$doc:meta])* $vis:vis enum $name:ident {
        $($(#[$of:meta])* $variant:ident = $text:literal),+ $(,)?
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        $vis enum $name {
            $($(#[$of])* #[doc = concat!("`", $text, "`")] $variant),+
        }
        impl $crate::param::Named for $name {
            const NAMES: &'static [&'static str] = &[$($text),+];
            fn named(name: &str) -> Self {
                match name {
                    $($text => Self::$variant,)+
                    other => panic!("{other} is not one of {:?}", Self::NAMES),
                }
            }
        }
    };
}

/// Declares the parameters of a study, as a struct.
///
/// A row is `name: kind(arguments), "help";`, with `, sim` before the semicolon if the parameter
/// does not apply to the live kernel. The kinds are those of [`ParamSpec`]: `count(unit, default,
/// [least, most])`, `real(unit, default, [least, most])`, `switch(default)`, `choice(Enum)` or
/// `choice(Enum, "default")`, and `each(Enum)` with an enum that implements [`Named`].
#[macro_export]
macro_rules! params {
    ($(#[$doc:meta])* $vis:vis struct $set:ident {
        $($name:ident: $kind:ident($($arg:tt)*), $help:expr $(, $only:ident)?;)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        $vis struct $set {
            $(#[doc = $help] pub $name: $crate::params!(@type $kind($($arg)*)),)*
        }
        impl $crate::param::ParamSet for $set {
            const NOT_LIVE: &'static [&'static str] =
                &[$($($crate::params!(@sim $only $name),)?)*];
            fn specs() -> Vec<$crate::param::ParamSpec> {
                vec![$($crate::params!(@spec $name $kind($($arg)*), $help),)*]
            }
            fn read(params: &$crate::param::Params) -> Self {
                Self { $($name: $crate::params!(@read params $name $kind($($arg)*)),)* }
            }
        }
    };
    (@sim sim $name:ident) => { stringify!($name) };
    (@type count($($arg:tt)*)) => { u64 };
    (@type real($($arg:tt)*)) => { f64 };
    (@type switch($($arg:tt)*)) => { bool };
    (@type choice($of:ty $(, $default:expr)?)) => { $of };
    (@type each($of:ty)) => { $of };
    (@spec $name:ident choice($of:ty), $help:expr) => {
        $crate::params!(
            @spec $name choice($of, <$of as $crate::param::Named>::NAMES[0]), $help
        )
    };
    (@spec $name:ident choice($of:ty, $default:expr), $help:expr) => {
        $crate::param::ParamSpec::choice(
            stringify!($name),
            $default,
            <$of as $crate::param::Named>::NAMES,
            $help,
        )
    };
    (@spec $name:ident each($of:ty), $help:expr) => {
        $crate::param::ParamSpec::each(
            stringify!($name),
            <$of as $crate::param::Named>::NAMES,
            $help,
        )
    };
    (@spec $name:ident $kind:ident($($arg:tt)*), $help:expr) => {
        $crate::param::ParamSpec::$kind(stringify!($name), $($arg)*, $help)
    };
    (@read $params:ident $name:ident choice($of:ty $(, $default:expr)?)) => {
        <$of as $crate::param::Named>::named($params.choice(stringify!($name)))
    };
    (@read $params:ident $name:ident each($of:ty)) => {
        <$of as $crate::param::Named>::named($params.choice(stringify!($name)))
    };
    (@read $params:ident $name:ident $kind:ident($($arg:tt)*)) => {
        $params.$kind(stringify!($name))
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_variant_has_the_name_that_it_was_declared_with() {
        names! {
            enum Load { Exit = "exit", Edge = "oom-edge" }
        }
        assert_eq!(Load::NAMES, ["exit", "oom-edge"]);
        assert_eq!((Load::Edge.name(), Load::named("exit")), ("oom-edge", Load::Exit));
    }
}
