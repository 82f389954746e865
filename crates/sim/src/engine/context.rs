//! The running engine of this host thread, and leaving a coroutine. All access goes through
//! [`with`]; the crate dereferences the engine's pointers only here and in `lock::serve_request`.
//!
//! Architecture invariant: the closure given to [`with`] neither suspends nor calls back into the
//! code on the machine. `with` takes the pointer out while the closure runs, so breaking the rule
//! is a panic, never two references.

use crate::engine::Engine;
use crate::task::Switch;
use mmscale_arch::Callbacks;
use std::cell::Cell;
use std::ptr::{NonNull, null_mut};
use std::rc::Rc;

thread_local! {
    /// The engine that runs on this host thread; null while there is none or while it is borrowed.
    static ENGINE: Cell<*mut Engine> = const { Cell::new(null_mut()) };
    /// Whether an engine runs on this host thread, borrowed or not.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Stores the engine's pointer again, on unwinding too.
struct PutBack(*mut Engine);

impl Drop for PutBack {
    #[inline]
    fn drop(&mut self) {
        ENGINE.with(|engine| engine.set(self.0));
    }
}

/// Calls `f` with the running engine; `None` if none runs on this host thread. Without one, before
/// and after a run, locks and atomics work as plain data.
///
/// # Panics
/// If the engine is borrowed: code on the machine was called from inside it.
#[inline(always)]
pub(crate) fn with_any<R>(f: impl FnOnce(&mut Engine) -> R) -> Option<R> {
    let engine = ENGINE.with(|engine| engine.replace(null_mut()));
    let Some(mut running) = NonNull::new(engine) else { return no_engine() };
    let _put_back = PutBack(engine);
    // SAFETY: `enter` made the pointer from a `&mut Engine` that outlives `Inside`, and that
    // reference has no other user before `Inside` is dropped. The slot is null while `f` runs, so
    // this is the only reference.
    Some(f(unsafe { running.as_mut() }))
}

/// Calls `f` with the running engine.
///
/// # Panics
/// If no engine runs on this host thread, or it is borrowed.
#[inline(always)]
pub(crate) fn with<R>(f: impl FnOnce(&mut Engine) -> R) -> R {
    match with_any(f) {
        Some(result) => result,
        None => outside(),
    }
}

#[cold]
#[inline(never)]
fn no_engine<R>() -> Option<R> {
    let inside = INSIDE.get();
    assert!(!inside, "the engine was called from inside itself: a probe may not call the machine");
    None
}

/// Panics: a function was called that needs a running engine.
#[cold]
#[inline(never)]
pub(crate) fn outside() -> ! {
    panic!("no simulated machine runs on this thread: call this inside `sim::run`");
}

/// Keeps the engine reachable through [`with`] until it is dropped.
pub(crate) struct Inside<'a> {
    engine: std::marker::PhantomData<&'a mut Engine>,
}

/// Makes `engine` the running engine of this host thread.
///
/// # Panics
/// If one runs already: runs do not nest.
pub(crate) fn enter(engine: &mut Engine) -> Inside<'_> {
    assert!(!INSIDE.replace(true), "a simulated machine runs on this thread already");
    ENGINE.set(engine);
    Inside { engine: std::marker::PhantomData }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        ENGINE.set(null_mut());
        INSIDE.set(false);
    }
}

/// Leaves the current coroutine until its task is resumed. The caller has asked for its turn
/// before: [`Engine::yield_turn`] makes sure that no coroutine is left while a panic unwinds the
/// stack.
#[inline(always)]
pub(crate) fn suspend(switch: Switch) {
    // SAFETY: the yielder is that of the coroutine that runs now: the engine stores it when the
    // coroutine starts (`run`), keeps it with the task, and the running CPU's is the current
    // task's. It lives on the coroutine's stack for as long as the coroutine's function runs.
    let yielder = unsafe { &*switch.yielder };
    yielder.suspend(switch.next);
}

/// Returns the callbacks; `None` while the machine boots or ends.
#[inline]
pub(crate) fn callbacks() -> Option<Rc<dyn Callbacks>> {
    with(|engine| engine.callbacks.clone())
}
