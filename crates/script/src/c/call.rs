//! System calls and accesses to memory in C, each with the check of its result.

use super::emit::Emitter;
use super::helpers::Helper;
use super::text::Lines;
use super::tree::{Call, Calls, PAGE, Range, VarId};

/// A call that makes memory or a descriptor.
pub(super) struct Made {
    /// Assignments to variables of sizes, before the call.
    pub(super) sizes: Vec<String>,
    pub(super) call: String,
    /// Assignments after it.
    after: Option<String>,
}

impl Emitter<'_> {
    /// Returns a call that makes memory or a descriptor, for the variable `to`.
    pub(super) fn made(&mut self, call: &Calls, to: Option<VarId>) -> Made {
        let (mut sizes, mut after) = (Vec::new(), None);
        let sized = to.filter(|to| self.has_size(*to)).map(|to| self.size_name(to));
        let call = match call {
            Calls::Mmap { over, file, size, prot, flags, .. } => {
                let mut size = self.expr(size);
                if let Some(name) = sized.filter(|name| *name != size) {
                    sizes.push(format!("{name} = {size}"));
                    size = name;
                }
                let at = over.as_ref().map_or("NULL".to_owned(), |over| self.address(over));
                let (fd, offset) = match file {
                    Some(file) => (self.name(file.var), self.expr(&file.from)),
                    None => ("-1".to_owned(), "0".to_owned()),
                };
                let flags = flags.join(" | ");
                format!("mmap({at}, {size}, {prot}, {flags}, {fd}, {offset})")
            }
            Calls::Mremap { of, size, flags, over, .. } => {
                let (at, old, new) = (self.address(of), self.expr(&of.size), self.expr(size));
                after = sized.map(|name| format!("{name} = {new};"));
                let over = over.as_ref().map(|over| format!(", {}", self.address(over)));
                format!("mremap({at}, {old}, {new}, {flags}{})", over.unwrap_or_default())
            }
            Calls::Memfd { size, .. } => {
                self.need(Helper::Memfd);
                let size = self.expr(size);
                sizes.extend(sized.map(|name| format!("{name} = {size}")));
                format!("new_file({size})")
            }
            Calls::PidfdOpen { of, .. } => {
                self.need(Helper::Syscalls);
                format!("syscall(SYS_pidfd_open, {}, 0)", self.name(*of))
            }
            _ => String::new(),
        };
        Made { sizes, call, after }
    }

    /// Writes the check of a call whose result is in its variable.
    pub(super) fn checked(&mut self, call: &Calls, out: &mut Lines) {
        let Some(to) = call.to() else { return };
        let name = self.name(to);
        let check = match call {
            Calls::Mmap { .. } => Some((format!("{name} == MAP_FAILED"), "mmap")),
            Calls::Mremap { .. } => Some((format!("{name} == MAP_FAILED"), "mremap")),
            Calls::PidfdOpen { .. } => Some((format!("{name} < 0"), "pidfd_open")),
            _ => None,
        };
        if let Some((failed, name)) = check {
            fails(&failed, name, out);
        }
        self.made(call, Some(to)).after.iter().for_each(|line| out.line(line));
    }

    /// Writes a call as a statement.
    pub(super) fn call(&mut self, call: &Call, out: &mut Lines) {
        if let Some(to) = call.what.to() {
            let to = Some(to).filter(|to| self.is_read(*to));
            return self.making(call, to, out);
        }
        if self.is_made(&call.what) {
            return self.making(call, None, out);
        }
        match &call.what {
            Calls::Write(of) => self.access(of, ["write_page", "write_pages"], out),
            Calls::Read(of) => self.access(of, ["read_page", "read_pages"], out),
            Calls::Check(of) => {
                self.need(Helper::CheckPages);
                self.need(Helper::Mark);
                let line = format!("check_pages({}, {});", self.address(of), self.expr(&of.size));
                out.line(&line);
            }
            Calls::Sleep(time) => {
                self.need(Helper::SleepFor);
                let line = format!("sleep_for({});", self.expr(time));
                out.line(&line);
            }
            Calls::Compute(time) => {
                self.need(Helper::Compute);
                let line = format!("compute({});", self.expr(time));
                out.line(&line);
            }
            Calls::Wait(process) => {
                self.need(Helper::WaitFor);
                out.line(&format!("wait_for({});", self.name(*process)));
            }
            Calls::WaitAll => {
                self.need(Helper::WaitForAll);
                out.line("wait_for_all();");
            }
            Calls::Join(thread) => {
                self.need(Helper::JoinThread);
                out.line(&format!("join_thread({});", self.name(*thread)));
                if self.needs.contains(&Helper::Threads) {
                    out.line("threads--;");
                }
            }
            other => {
                let (text, name) = self.plain(other);
                self.tried(&text, name, call.attempt, out);
            }
        }
    }

    /// Returns a call that returns 0 or fails, and its name.
    fn plain(&mut self, call: &Calls) -> (String, &'static str) {
        match call {
            Calls::Memory { name, of, last } => {
                let last = last.as_ref().map(|last| format!(", {last}")).unwrap_or_default();
                (format!("{name}({}, {}{last})", self.address(of), self.expr(&of.size)), name)
            }
            Calls::Mbind { of, node, flags } => {
                self.need(Helper::Mbind);
                let (at, size, node) = (self.address(of), self.expr(&of.size), self.expr(node));
                (format!("bind_to({at}, {size}, {node}, {flags})"), "mbind")
            }
            Calls::Fadvise { of, advice } => {
                self.need(Helper::Fadvise);
                let (fd, from, size) =
                    (self.name(of.var), self.expr(&of.from), self.expr(&of.size));
                let call = format!("posix_fadvise({fd}, {from}, {size}, {advice})");
                // It returns the error.
                (format!("(errno = {call})"), "posix_fadvise")
            }
            Calls::Close(fd) => (format!("close({})", self.name(*fd)), "close"),
            Calls::Kill(process) => (format!("kill({}, SIGKILL)", self.name(*process)), "kill"),
            Calls::Mrelease(fd) => {
                self.need(Helper::Syscalls);
                (
                    format!("syscall(SYS_process_mrelease, {}, 0)", self.name(*fd)),
                    "process_mrelease",
                )
            }
            Calls::OomScoreAdj(process, score) => {
                self.need(Helper::OomScoreAdj);
                let score = self.expr(score);
                (format!("oom_score_adj({}, {score})", self.name(*process)), "oom_score_adj")
            }
            _ => (String::new(), ""),
        }
    }

    fn tried(&mut self, text: &str, name: &'static str, attempt: bool, out: &mut Lines) {
        match attempt {
            false => fails(text, name, out),
            true if self.asks => {
                self.need(Helper::Ok);
                out.line(&format!("ok = !{text};"));
            }
            true => {
                let line = format!("{text};{}", self.may_fail());
                out.line(&line);
            }
        }
    }

    /// Returns a comment, once in a function.
    const fn may_fail(&mut self) -> &'static str {
        if std::mem::replace(&mut self.told, true) { "" } else { "\t/* may fail */" }
    }

    const fn is_made(&self, call: &Calls) -> bool {
        matches!(
            call,
            Calls::Mmap { .. }
                | Calls::Mremap { .. }
                | Calls::Memfd { .. }
                | Calls::PidfdOpen { .. }
        )
    }

    /// Writes a call that makes memory or a descriptor.
    fn making(&mut self, call: &Call, to: Option<VarId>, out: &mut Lines) {
        let made = self.made(&call.what, to);
        let (failed, name) = match call.what {
            Calls::Mmap { .. } => (" == MAP_FAILED", "mmap"),
            Calls::Mremap { .. } => (" == MAP_FAILED", "mremap"),
            Calls::Memfd { .. } => (" < 0", "memfd_create"),
            _ => (" < 0", "pidfd_open"),
        };
        match (to, call.attempt) {
            (None, false) if matches!(call.what, Calls::Memfd { .. }) => {
                out.line(&format!("{};", made.call));
            }
            (None, false) => fails(&format!("{}{failed}", made.call), name, out),
            (None, true) if self.asks => {
                self.need(Helper::Ok);
                out.line(&format!("ok = !({}{failed});", made.call));
            }
            (None, true) => {
                let line = format!("{};{}", made.call, self.may_fail());
                out.line(&line);
            }
            (Some(to), false) => {
                made.sizes.iter().for_each(|size| out.line(&format!("{size};")));
                out.line(&format!("{} = {};", self.name(to), made.call));
                self.checked(&call.what, out);
            }
            (Some(to), true) => self.attempted(to, &made, failed, out),
        }
    }

    /// Writes a call that leaves its variable as it is if it fails.
    fn attempted(&mut self, to: VarId, made: &Made, failed: &str, out: &mut Lines) {
        let got = self.declaration(to).replace(&self.name(to), "got");
        out.line("do {");
        out.indent += 1;
        made.sizes.iter().for_each(|size| out.line(&format!("{size};")));
        out.line(&format!("{got} = {};", made.call));
        out.blank();
        let succeeded = format!("!(got{failed})");
        if self.asks {
            self.need(Helper::Ok);
            out.line(&format!("ok = {succeeded};"));
        }
        out.line(&format!("if ({succeeded}) {{"));
        out.indent += 1;
        out.line(&format!("{} = got;", self.name(to)));
        made.after.iter().for_each(|line| out.line(line));
        out.indent -= 1;
        out.line("}");
        out.indent -= 1;
        out.line("} while (0);");
    }

    fn access(&mut self, of: &Range, [one, many]: [&str; 2], out: &mut Lines) {
        let writes = one == "write_page";
        let at = self.address(of);
        if of.size == PAGE {
            self.need(if writes { Helper::WritePage } else { Helper::ReadPage });
            return out.line(&format!("{one}({at});"));
        }
        self.need(if writes { Helper::WritePages } else { Helper::ReadPages });
        let line = format!("{many}({at}, {});", self.expr(&of.size));
        out.line(&line);
    }
}

/// Advice that older headers lack.
pub(super) const NEWER: [(&str, u32); 5] = [
    ("MADV_COLD", 20),
    ("MADV_PAGEOUT", 21),
    ("MADV_POPULATE_READ", 22),
    ("MADV_POPULATE_WRITE", 23),
    ("MADV_COLLAPSE", 25),
];

/// Writes the check of a call.
pub(super) fn fails(failed: &str, name: &str, out: &mut Lines) {
    out.line(&format!("if ({failed})"));
    out.indent += 1;
    out.line(&format!("err(1, \"{name}\");"));
    out.indent -= 1;
}
