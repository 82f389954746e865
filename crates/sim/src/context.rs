//! The running engine of this host thread, and leaving a coroutine. All access goes through
//! [`with`]; the engine crate's pointers are dereferenced only here and in `lock::answer_spin`.
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
    /// The engine that runs on this host thread; null while there is none or while it is in use.
    static ENGINE: Cell<*mut Engine> = const { Cell::new(null_mut()) };
    /// Whether an engine runs on this host thread, in use or not.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Puts the engine's pointer back, on unwinding too.
struct PutBack(*mut Engine);

impl Drop for PutBack {
    #[inline]
    fn drop(&mut self) {
        ENGINE.with(|engine| engine.set(self.0));
    }
}

/// Gives `f` the running engine; `None` if none runs on this host thread. Locks and atomics work
/// as plain data then: before a run and after it.
///
/// # Panics
/// If the engine is in use: code on the machine was called from inside it.
#[inline(always)]
pub(crate) fn with_any<R>(f: impl FnOnce(&mut Engine) -> R) -> Option<R> {
    let engine = ENGINE.with(|engine| engine.replace(null_mut()));
    let Some(mut running) = NonNull::new(engine) else { return no_engine() };
    let _put_back = PutBack(engine);
    // SAFETY: `enter` made the pointer from a `&mut Engine` that outlives `Inside`, and nobody
    // else uses that reference before `Inside` is gone. The pointer was taken out of its slot for
    // the time of `f`, so this is the only reference.
    Some(f(unsafe { running.as_mut() }))
}

/// Gives `f` the running engine.
///
/// # Panics
/// If no engine runs on this host thread, or it is in use.
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

/// Something was asked that needs a running engine.
#[cold]
#[inline(never)]
pub(crate) fn outside() -> ! {
    panic!("no simulated machine runs on this thread: call this inside `sim::run`");
}

/// The engine is reachable through [`with`] until this is dropped.
pub(crate) struct Inside<'a> {
    engine: std::marker::PhantomData<&'a mut Engine>,
}

/// Makes `engine` the one that runs on this host thread.
///
/// # Panics
/// If there is one already: runs do not nest.
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

/// Leaves the current coroutine until its task goes on. Whoever calls this has asked for its turn
/// before: `irq::turn` sees to it that nothing is left while a panic unwinds the stack.
#[inline(always)]
pub(crate) fn suspend(switch: Switch) {
    // SAFETY: the yielder is that of the coroutine that runs now: the engine stores it when the
    // coroutine starts (`run`), keeps it with the task, and the running CPU's is the current
    // task's. It lives on the coroutine's stack for as long as the coroutine's function runs.
    let yielder = unsafe { &*switch.yielder };
    yielder.suspend(switch.next);
}

/// The callbacks; `None` while the machine boots or dies.
#[inline]
pub(crate) fn callbacks() -> Option<Rc<dyn Callbacks>> {
    with(|engine| engine.callbacks.clone())
}
