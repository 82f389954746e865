//! Types that processes may share: data with the same meaning in each process.

use crate::{CpuTime, ProcessId};

/// Types whose values are pure data, without pointers.
///
/// ```
/// fn shared<T: mmscale_system::Plain>(value: T) -> T {
///     value
/// }
/// assert_eq!(shared((7_u64, Some([false; 3]), 0.5)).0, 7);
/// ```
/// ```compile_fail,E0277
/// fn shared<T: mmscale_system::Plain>(_: T) {}
/// shared(&7_u64);
/// ```
/// ```compile_fail,E0277
/// fn shared<T: mmscale_system::Plain>(_: T) {}
/// shared(Some(&7_u64));
/// ```
/// ```compile_fail,E0277
/// fn shared<T: mmscale_system::Plain>(_: T) {}
/// shared(Box::new(7_u64));
/// ```
/// ```compile_fail,E0277
/// fn shared<T: mmscale_system::Plain>(_: T) {}
/// shared(vec![7_u64]);
/// ```
/// ```compile_fail,E0277
/// fn shared<T: mmscale_system::Plain>(_: T) {}
/// shared(&raw const *"seven");
/// ```
/// ```compile_fail,E0277
/// fn shared<T: mmscale_system::Plain>(_: T) {}
/// shared(std::process::id as fn() -> u32);
/// ```
///
/// A struct gets this trait from [`plain!`](crate::plain!), which checks the type of each field.
///
/// # Safety
/// A value holds no pointer, reference, function, descriptor or anything else that means something
/// in one process only.
pub unsafe trait Plain: Copy + Send + 'static {}

macro_rules! scalars {
    ($($type:ty)*) => {$(
        // SAFETY: a number or a flag.
        unsafe impl Plain for $type {}
    )*};
}

scalars!(() bool u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64);

// SAFETY: nothing or a value of a plain type.
unsafe impl<T: Plain> Plain for Option<T> {}
// SAFETY: values of plain types in a row.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}
// SAFETY: two values of plain types.
unsafe impl<A: Plain, B: Plain> Plain for (A, B) {}
// SAFETY: three values of plain types.
unsafe impl<A: Plain, B: Plain, C: Plain> Plain for (A, B, C) {}

/// Implements [`Plain`] for structs whose fields are all plain. All fields must be listed; a field
/// that is not plain or not listed is a compile error.
///
/// ```
/// #[derive(Clone, Copy)]
/// struct Tally {
///     pages: u64,
///     late: Option<u32>,
/// }
/// mmscale_system::plain!(Tally { pages, late });
/// fn is_plain<T: mmscale_system::Plain>() {}
/// is_plain::<Tally>();
/// ```
/// ```compile_fail,E0277
/// #[derive(Clone, Copy)]
/// struct Tally {
///     pages: u64,
///     name: &'static str,
/// }
/// mmscale_system::plain!(Tally { pages, name });
/// ```
/// ```compile_fail,E0027
/// #[derive(Clone, Copy)]
/// struct Tally {
///     pages: u64,
///     name: &'static str,
/// }
/// mmscale_system::plain!(Tally { pages });
/// ```
/// ```compile_fail
/// #[derive(Clone, Copy)]
/// union Both {
///     number: u64,
///     bytes: [u8; 8],
/// }
/// mmscale_system::plain!(Both { number });
/// ```
#[macro_export]
macro_rules! plain {
    ($($type:ident { $($field:tt),* $(,)? })*) => {$(
        const _: () = {
            fn all_fields_are_plain(value: &$type) {
                fn is_plain<T: $crate::Plain>(_: &T) {}
                let $type { $($field: _),* } = value;
                $(is_plain(&value.$field);)*
            }
            // Type-checked, never called.
            let _: fn(&$type) = all_fields_are_plain;
        };
        // SAFETY: all fields of the struct are plain, as checked above.
        unsafe impl $crate::Plain for $type {}
    )*};
}

plain! {
    CpuTime { user_ns, system_ns }
    ProcessId { 0 }
}
