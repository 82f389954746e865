//! Accesses of programs to their memory that may fault. A SIGSEGV or SIGBUS at one of two known
//! instructions becomes an error instead of the end of the process.

use mmscale_system::Errno;

/// The result of an access: the word, and 0 or the signal.
#[repr(C)]
struct Accessed {
    word: u64,
    signal: u64,
}

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".globl mmscale_user_load",
    "mmscale_user_load:",
    "mov rax, [rdi]",
    "xor edx, edx",
    "mmscale_user_failed:",
    "ret",
    ".globl mmscale_user_failed",
    ".globl mmscale_user_store",
    "mmscale_user_store:",
    "mov [rdi], rsi",
    "xor eax, eax",
    "xor edx, edx",
    "ret",
);

#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(
    ".globl mmscale_user_load",
    "mmscale_user_load:",
    "ldr x0, [x0]",
    "mov x1, #0",
    "mmscale_user_failed:",
    "ret",
    ".globl mmscale_user_failed",
    ".globl mmscale_user_store",
    "mmscale_user_store:",
    "str x1, [x0]",
    "mov x0, #0",
    "mov x1, #0",
    "ret",
);

unsafe extern "C" {
    fn mmscale_user_load(at: u64) -> Accessed;
    fn mmscale_user_store(at: u64, word: u64) -> Accessed;
    fn mmscale_user_failed();
}

/// Reads a word.
///
/// # Safety
/// The address is in memory of programs, mapped or not.
pub(crate) unsafe fn load(at: u64) -> Result<u64, Errno> {
    // SAFETY: the first instruction reads a word of memory that Rust does not know. If it faults,
    // the handler continues after it with the signal's number.
    let Accessed { word, signal } = unsafe { mmscale_user_load(at) };
    failed(signal).map_or(Ok(word), Err)
}

/// Writes a word.
///
/// # Safety
/// The address is in memory of programs, mapped or not.
pub(crate) unsafe fn store(at: u64, word: u64) -> Result<(), Errno> {
    // SAFETY: as for `load`; Rust has no data where programs may write.
    let Accessed { signal, .. } = unsafe { mmscale_user_store(at, word) };
    failed(signal).map_or(Ok(()), Err)
}

fn failed(signal: u64) -> Option<Errno> {
    match signal as i32 {
        0 => None,
        libc::SIGBUS => Some(Errno::Bus),
        _ => Some(Errno::Segv),
    }
}

/// Installs the handler for faults of programs' accesses, in this process and in all its forks.
pub(crate) fn catch_faults() -> std::io::Result<()> {
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        // SAFETY: a zeroed sigaction is a valid one; the handler is async-signal-safe.
        let set = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_fault as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
            libc::sigaction(signal, &action, std::ptr::null_mut())
        };
        if set != 0 {
            return Err(std::io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Continues at `mmscale_user_failed` if one of the two instructions has faulted. Any other fault
/// is a bug: it repeats with the default action.
extern "C" fn on_fault(signal: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let ours = [mmscale_user_load as *const () as u64, mmscale_user_store as *const () as u64];
    // SAFETY: the kernel passes a handler with SA_SIGINFO its context, which it may change.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    if !divert(context, &ours, mmscale_user_failed as *const () as u64, signal as u64) {
        // SAFETY: setting the default action is async-signal-safe.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

#[cfg(target_arch = "x86_64")]
fn divert(context: &mut libc::ucontext_t, ours: &[u64], to: u64, signal: u64) -> bool {
    let registers = &mut context.uc_mcontext.gregs;
    let found = ours.contains(&(registers[libc::REG_RIP as usize] as u64));
    if found {
        registers[libc::REG_RIP as usize] = to as i64;
        registers[libc::REG_RDX as usize] = signal as i64;
    }
    found
}

#[cfg(target_arch = "aarch64")]
fn divert(context: &mut libc::ucontext_t, ours: &[u64], to: u64, signal: u64) -> bool {
    let found = ours.contains(&context.uc_mcontext.pc);
    if found {
        context.uc_mcontext.pc = to;
        context.uc_mcontext.regs[1] = signal;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_to_nothing_is_an_error_and_one_to_memory_is_none() {
        catch_faults().unwrap();
        // SAFETY: a word of this test's own, and one of a page that is never mapped.
        let load = |at| unsafe { load(at) };
        // SAFETY: as above.
        let store = |at, word| unsafe { store(at, word) };
        let mut word = 7_u64;
        let at = &raw mut word as u64;
        assert_eq!(load(at), Ok(7));
        assert_eq!(store(at, 9), Ok(()));
        assert_eq!(load(at), Ok(9));
        assert_eq!(load(4096), Err(Errno::Segv));
        assert_eq!(store(4096, 1), Err(Errno::Segv));
    }
}
