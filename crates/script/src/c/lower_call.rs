//! Calls of a script as calls in C.

use super::lower::{Done, Lowering};
use super::tree::{Block, Call, Calls, Expr, Node, PAGE, Range, VarId, What, ZERO};
use crate::ast::{self, At, ExprKind};
use crate::compile::{Type, flag};
use crate::error::wrong;

/// The flags of mmap.
const MAP: [(&str, &str); 6] = [
    ("POPULATE", "MAP_POPULATE"),
    ("LOCKED", "MAP_LOCKED"),
    ("SHARED", "MAP_SHARED"),
    ("PRIVATE", "MAP_PRIVATE"),
    ("FIXED_NOREPLACE", "MAP_FIXED_NOREPLACE"),
    ("WRITE", ""),
];

/// All advice, by its name without `MADV_`.
const ADVICE: [&str; 21] = [
    "MADV_DONTNEED",
    "MADV_FREE",
    "MADV_COLD",
    "MADV_PAGEOUT",
    "MADV_POPULATE_READ",
    "MADV_POPULATE_WRITE",
    "MADV_WILLNEED",
    "MADV_COLLAPSE",
    "MADV_HUGEPAGE",
    "MADV_NOHUGEPAGE",
    "MADV_DONTFORK",
    "MADV_DOFORK",
    "MADV_WIPEONFORK",
    "MADV_KEEPONFORK",
    "MADV_NORMAL",
    "MADV_RANDOM",
    "MADV_SEQUENTIAL",
    "MADV_MERGEABLE",
    "MADV_UNMERGEABLE",
    "MADV_DONTDUMP",
    "MADV_DODUMP",
];

/// Memory of both kinds of access.
const READ_WRITE: &str = "PROT_READ | PROT_WRITE";
/// Memory of a program.
const READ_EXEC: &str = "PROT_READ | PROT_EXEC";

/// Returns the values and the flags of a call.
fn split(call: &ast::Call) -> (&[ast::Expr], Vec<&str>) {
    let first = call.args.iter().position(|arg| flag(arg).is_some());
    let (values, flags) = call.args.split_at(first.unwrap_or(call.args.len()));
    (values, flags.iter().filter_map(flag).collect())
}

impl<'a> Lowering<'a> {
    fn push(&self, out: &mut Block, at: At, what: Calls) {
        let call = Call { what, attempt: self.attempt };
        out.push(Node { comment: None, at, what: What::Call(call) });
    }

    /// Reads a call as a statement.
    pub(super) fn act(&mut self, call: &'a ast::Call, at: At, out: &mut Block) -> Done<()> {
        if self.made(call, None, at, out)?.is_some() {
            return Ok(());
        }
        let (values, flags) = split(call);
        let name = call.name.text.as_str();
        let what = match (name, values) {
            ("munmap" | "munlock" | "mlock" | "msync" | "mprotect" | "madvise", [memory]) => {
                let of = self.range(memory, out)?;
                let (name, last) = of_memory(name, flags.first().copied());
                Calls::Memory { name, of, last }
            }
            ("mbind", [memory, node]) => {
                let of = self.range(memory, out)?;
                let (node, _) = self.expr(node, out)?;
                let flags = match flags.first() {
                    Some(&"MOVE") => "MPOL_MF_MOVE",
                    Some(_) => "MPOL_MF_MOVE | MPOL_MF_STRICT",
                    None => "0",
                };
                Calls::Mbind { of, node, flags }
            }
            ("write", [memory]) => Calls::Write(self.range(memory, out)?),
            ("read", [memory]) => Calls::Read(self.range(memory, out)?),
            ("check", [memory]) => Calls::Check(self.range(memory, out)?),
            ("sleep", [time]) => Calls::Sleep(self.expr(time, out)?.0),
            ("compute", [time]) => Calls::Compute(self.expr(time, out)?.0),
            ("wait", []) => Calls::WaitAll,
            ("wait", [process]) => Calls::Wait(self.named(process)?),
            ("join", [thread]) => Calls::Join(self.named(thread)?),
            ("kill", [process]) => Calls::Kill(self.named(process)?),
            ("posix_fadvise", [file]) => {
                let of = self.range(file, out)?;
                let advice = match flags.first() {
                    Some(&"WILLNEED") => "POSIX_FADV_WILLNEED",
                    _ => "POSIX_FADV_DONTNEED",
                };
                Calls::Fadvise { of, advice }
            }
            ("close", [file]) => Calls::Close(self.named(file)?),
            ("process_mrelease", [fd]) => Calls::Mrelease(self.named(fd)?),
            ("oom_score_adj", [process, score]) => {
                Calls::OomScoreAdj(self.named(process)?, self.expr(score, out)?.0)
            }
            ("join", []) => {
                return wrong(at, "join() of all threads is not written in C; use join(THREAD)");
            }
            ("cpu_offline" | "cpu_online", _) => {
                return wrong(at, format!("{name} would take a CPU from other programs"));
            }
            ("exec", []) => {
                let what = "exec() is not written in C: the statements after it would be another \
                            program; `mmscale run .. --on live` unmaps all memory in its place";
                return wrong(at, what);
            }
            ("barrier" | "mkdir" | "rmdir" | "process_vm_readv", _) => {
                return wrong(at, format!("{name}() is not written in C; use `mmscale run`"));
            }
            // A function of values, whose result is not used.
            _ => return self.function(call, at, out).map(|_| ()),
        };
        self.push(out, at, what);
        Ok(())
    }

    /// Returns the variable that an argument names.
    fn named(&self, expr: &ast::Expr) -> Done<VarId> {
        match &expr.kind {
            ExprKind::Name(name) => match self.find(name) {
                Some(var) => Ok(var),
                None => wrong(expr.at, format!("there is no `{name}`")),
            },
            _ => wrong(expr.at, "only a variable is written in C here; give the value a name"),
        }
    }

    /// Reads `NAME = CALL(..)`. `None`: the call has no effect, it is a value.
    pub(super) fn call_into(
        &mut self,
        call: &'a ast::Call,
        name: &str,
        at: At,
        out: &mut Block,
    ) -> Done<Option<()>> {
        let Some(of) = type_of(&call.name.text) else { return Ok(None) };
        // The arguments are read first: they may have the old value of the variable.
        let known = self.find(name);
        let begin = out.len();
        let to = known.unwrap_or(VarId(usize::MAX));
        self.made(call, Some(to), at, out)?;
        if known.is_none() {
            let to = self.declare(name, of);
            if let Some(Node { what: What::Call(made), .. }) = out[begin..].last_mut() {
                made.what.set_to(to);
            }
        }
        let to = self.target(name, of);
        let size = match out.last().map(|node| &node.what) {
            Some(What::Call(made)) => made.what.size(),
            _ => None,
        };
        self.vars[to.0].sizes.extend(size);
        Ok(Some(()))
    }

    /// Reads a call that makes memory or a descriptor. `None`: it is another one.
    fn made(
        &mut self,
        call: &'a ast::Call,
        to: Option<VarId>,
        at: At,
        out: &mut Block,
    ) -> Done<Option<()>> {
        let (values, flags) = split(call);
        let what = match call.name.text.as_str() {
            "mmap" => self.mmap(values, &flags, to, out)?,
            "mremap" => {
                let of = self.range(&values[0], out)?;
                let (size, _) = self.expr(&values[1], out)?;
                let over = values.get(2).map(|over| self.range(over, out)).transpose()?;
                let flags = match (&over, flags.first()) {
                    (Some(_), _) => "MREMAP_MAYMOVE | MREMAP_FIXED",
                    (None, Some(&"NOMOVE")) => "0",
                    (None, Some(&"DONTUNMAP")) => "MREMAP_MAYMOVE | MREMAP_DONTUNMAP",
                    (None, _) => "MREMAP_MAYMOVE",
                };
                Calls::Mremap { to, of, size, flags, over }
            }
            "memfd_create" => Calls::Memfd { to, size: self.expr(&values[0], out)?.0 },
            "pidfd_open" => Calls::PidfdOpen { to, of: self.named(&values[0])? },
            _ => return Ok(None),
        };
        self.push(out, at, what);
        Ok(Some(()))
    }

    fn mmap(
        &mut self,
        values: &'a [ast::Expr],
        flags: &[&str],
        to: Option<VarId>,
        out: &mut Block,
    ) -> Done<Calls> {
        let (mut over, mut file, mut size) = (None, None, PAGE);
        for value in values {
            match self.expr(value, out)? {
                (Expr::Address(range), Type::File) => {
                    size = match &over {
                        Some(Range { size, .. }) if *size != range.size => {
                            Expr::Pick(false, Box::new([size.clone(), range.size.clone()]))
                        }
                        _ => range.size.clone(),
                    };
                    file = Some(*range);
                }
                (Expr::Address(range), _) => {
                    size = range.size.clone();
                    over = Some(*range);
                }
                (bytes, _) => size = bytes,
            }
        }
        let prot = match flags.iter().find(|flag| ["NONE", "READ", "EXEC"].contains(flag)) {
            Some(&"NONE") => "PROT_NONE",
            Some(&"EXEC") => READ_EXEC,
            Some(_) => "PROT_READ",
            None => READ_WRITE,
        };
        let mut given: Vec<&'static str> = Vec::new();
        if file.is_none() {
            given.extend(["MAP_PRIVATE", "MAP_ANONYMOUS"]);
        }
        let known = |flag: &&str| MAP.iter().find(|(name, _)| name == flag).map(|(_, c)| *c);
        let rest = flags.iter().filter_map(known).filter(|flag| !flag.is_empty());
        given.extend(rest.filter(|flag| file.is_some() || *flag != "MAP_PRIVATE"));
        if over.is_some() && !given.contains(&"MAP_FIXED_NOREPLACE") {
            given.push("MAP_FIXED");
        }
        Ok(Calls::Mmap { to, over, file, size, prot, flags: given })
    }

    /// Reads a call as a value. One with an effect is put before, and its value has a name.
    pub(super) fn function(
        &mut self,
        call: &'a ast::Call,
        at: At,
        out: &mut Block,
    ) -> Done<(Expr, Type)> {
        let name = call.name.text.as_str();
        if let Some(of) = type_of(name) {
            let var = self.fresh(&[if of == Type::Memory { "mem" } else { "fd" }, "tmp"], of);
            let begin = out.len();
            self.made(call, Some(var), at, out)?;
            let made = out[begin..].last().map(|node| &node.what);
            let size = made.and_then(|made| match made {
                What::Call(made) => made.what.size(),
                _ => None,
            });
            self.vars[var.0].sizes.extend(size);
            let whole = Range { var, from: ZERO, size: Expr::SizeOf(var) };
            let is_range = matches!(of, Type::Memory | Type::File);
            let value = if is_range { Expr::Address(Box::new(whole)) } else { Expr::Var(var) };
            return Ok((value, of));
        }
        let (values, _) = split(call);
        let mut given = Vec::new();
        for value in values {
            given.push(self.expr(value, out)?);
        }
        Ok(match (name, &given[..]) {
            ("rand", [(until, of)]) => (Expr::Random(Box::new([ZERO, until.clone()])), *of),
            ("rand", [(from, of), (until, _)]) => {
                (Expr::Random(Box::new([from.clone(), until.clone()])), *of)
            }
            ("min" | "max", [(a, of), (b, _)]) => {
                (Expr::Pick(name == "max", Box::new([a.clone(), b.clone()])), *of)
            }
            ("size", [(Expr::Address(range), _)]) => (range.size.clone(), Type::Size),
            ("pages", [(Expr::Address(range), _)]) => {
                (Expr::PagesIn(Box::new(range.size.clone())), Type::Number)
            }
            ("mincore", [(Expr::Address(range), _)]) => {
                (Expr::Present(range.clone()), Type::Number)
            }
            _ => return wrong(at, format!("`{name}` as a value is not written in C")),
        })
    }
}

/// Returns the type of what a call makes.
fn type_of(name: &str) -> Option<Type> {
    match name {
        "mmap" | "mremap" => Some(Type::Memory),
        "memfd_create" => Some(Type::File),
        "pidfd_open" => Some(Type::Pidfd),
        _ => None,
    }
}

/// Returns the name in C of a call on memory, and its last argument.
fn of_memory(name: &str, flag: Option<&str>) -> (&'static str, Option<String>) {
    match (name, flag) {
        ("munmap", _) => ("munmap", None),
        ("munlock", _) => ("munlock", None),
        ("msync", _) => ("msync", Some("MS_SYNC".to_owned())),
        ("mlock", flag) => ("mlock2", Some(flag.map_or("0", |_| "MLOCK_ONFAULT").to_owned())),
        ("mprotect", Some("NONE")) => ("mprotect", Some("PROT_NONE".to_owned())),
        ("mprotect", Some("READ")) => ("mprotect", Some("PROT_READ".to_owned())),
        ("mprotect", Some("EXEC")) => ("mprotect", Some(READ_EXEC.to_owned())),
        ("mprotect", _) => ("mprotect", Some(READ_WRITE.to_owned())),
        (_, flag) => {
            let named = |known: &&&str| known.strip_prefix("MADV_") == flag;
            let advice = ADVICE.iter().find(named).copied().unwrap_or("MADV_NORMAL");
            ("madvise", Some(advice.to_owned()))
        }
    }
}

impl Calls {
    fn set_to(&mut self, var: VarId) {
        match self {
            Self::Mmap { to, .. } | Self::Mremap { to, .. } => *to = Some(var),
            Self::Memfd { to, .. } | Self::PidfdOpen { to, .. } => *to = Some(var),
            _ => {}
        }
    }
    /// Returns the size of what the call makes.
    fn size(&self) -> Option<Expr> {
        match self {
            Self::Mmap { size, .. } | Self::Mremap { size, .. } | Self::Memfd { size, .. } => {
                Some(size.clone())
            }
            _ => None,
        }
    }
}
