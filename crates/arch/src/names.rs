//! Enums whose variants have names in files and reports, each declared once.

/// Declares an enum without fields. Each variant is followed by its name in files and reports;
/// `ALL`, `COUNT` and `name` are generated from the list.
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
            /// All variants, in the order of their discriminants.
            pub const ALL: [Self; Self::COUNT] = [$(Self::$variant),*];
            /// The number of variants; discriminants are below it.
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
