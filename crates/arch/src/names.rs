//! Enums whose variants have names in files and reports, each declared once.

/// Declares an enum without fields. Each variant stands with the name that files and reports use
/// for it; `ALL`, `COUNT` and `name` follow from the list.
macro_rules! named {
    (
        $(#[$meta:meta])*
        pub enum $enum:ident {
            $($(#[$doc:meta])* $variant:ident = $name:literal,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum $enum {
            $($(#[$doc])* $variant,)*
        }

        impl $enum {
            /// All, in the order of their discriminants.
            pub const ALL: [Self; Self::COUNT] = [$(Self::$variant),*];
            /// How many there are; discriminants are below it.
            pub const COUNT: usize = Self::NAMES.len();
            const NAMES: &[&'static str] = &[$($name),*];

            /// The name in files and reports.
            pub const fn name(self) -> &'static str {
                Self::NAMES[self as usize]
            }
        }
    };
}

pub(crate) use named;
