//! Policies: a mechanism's alternatives, each declared once.
//!
//! A mechanism that can work in several ways has an enum of *policies*, declared with
//! [`policies!`](crate::policies). Lists, parsers, help texts and the command line are generated
//! from the declaration: a new policy is one line of it. Switches that represent a version of
//! Linux, or a setting of an administrator, are plain enums: they are parameters.

/// Name and help text of a policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct About {
    /// Its name in arms, on the command line and in records.
    pub name: &'static str,
    /// Help text: the doc comment of its variant.
    pub help: &'static str,
}

/// An enum of the policies of one mechanism; [`policies!`](crate::policies) implements it.
pub trait Policy: Copy + Eq + Default + core::fmt::Debug + 'static {
    /// The mechanism's key in arms and on the command line.
    const KEY: &'static str;
    /// Summary of the mechanism, in some words.
    const SUMMARY: &'static str;
    /// Names and help texts of all policies; the first is the default: Linux.
    const ABOUT: &'static [About];

    /// The index of this policy in [`Policy::ABOUT`].
    fn place(self) -> usize;
    /// The policy at an index of [`Policy::ABOUT`].
    fn at(place: usize) -> Self;

    /// The name of this policy.
    fn name(self) -> &'static str {
        Self::ABOUT[self.place()].name
    }
    /// The help text of this policy.
    fn help(self) -> &'static str {
        Self::ABOUT[self.place()].help
    }
    /// The policy with a name; `None` if the mechanism has none of that name.
    fn from_name(name: &str) -> Option<Self> {
        Self::ABOUT.iter().position(|about| about.name == name).map(Self::at)
    }
}

/// Declares the policies of a mechanism: the enum, and its [`Policy`].
///
/// The mechanism's key and its summary follow the enum's name, then the policies with their names.
/// The first is the default, and what Linux does. A policy's doc comment is its help text, so it
/// is plain text.
///
/// ```
/// use mmscale_arch::Policy;
///
/// mmscale_arch::policies! {
///     /// How tea is made.
///     pub enum TeaPolicy: "tea", "how tea is made" {
///         /// Puts a bag into the cup.
///         Stock = "stock",
///         /// Puts leaves into a pot,
///         /// and the pot on a stove.
///         Leaves = "leaves",
///     }
/// }
///
/// assert_eq!(TeaPolicy::default(), TeaPolicy::Stock);
/// assert_eq!(TeaPolicy::from_name("leaves"), Some(TeaPolicy::Leaves));
/// assert_eq!(TeaPolicy::Leaves.help(), "Puts leaves into a pot, and the pot on a stove.");
/// ```
#[macro_export]
macro_rules! policies {
    (
        $(#[doc = $enum_doc:literal])+
        pub enum $Enum:ident: $key:literal, $summary:literal {
            $(#[doc = $first_doc:literal])+
            $First:ident = $first:literal
            $(, $(#[doc = $doc:literal])+ $Variant:ident = $name:literal)* $(,)?
        }
    ) => {
        $(#[doc = $enum_doc])+
        #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
        pub enum $Enum {
            $(#[doc = $first_doc])+
            #[default]
            $First,
            $($(#[doc = $doc])+ $Variant,)*
        }

        impl $Enum {
            /// All policies; the first is the default: Linux.
            pub const ALL: [Self; { [$first $(, $name)*].len() }] =
                [Self::$First $(, Self::$Variant)*];
        }

        impl $crate::Policy for $Enum {
            const KEY: &'static str = $key;
            const SUMMARY: &'static str = $summary;
            const ABOUT: &'static [$crate::About] = &[
                $crate::About { name: $first, help: concat!($($first_doc),+).trim_ascii() },
                $($crate::About { name: $name, help: concat!($($doc),+).trim_ascii() },)*
            ];

            #[inline]
            fn place(self) -> usize {
                self as usize
            }
            #[inline]
            fn at(place: usize) -> Self {
                Self::ALL[place]
            }
        }
    };
}
