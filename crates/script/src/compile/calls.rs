//! Calls: system calls by their names, and functions of values.

use super::{Compiler, Done, Type};
use crate::ast::{Call, Expr, ExprKind, Name};
use crate::error::{Wrong, unknown, wrong};
use crate::op::{Code, Mapping, Move, NONE, Slot, Verb, Where};
use mmscale_system::{Advice, Backing, FileAdvice, LockWhat, Populate, Present, Prot, Share};

/// All calls, with their arguments as a message shows them.
const CALLS: &[(&str, &str)] = &[
    ("mmap", "mmap(SIZE, FLAGS..), mmap(FILE, SHARED or PRIVATE, ..), mmap(MEMORY, [FILE], ..)"),
    ("munmap", "munmap(MEMORY)"),
    ("mprotect", "mprotect(MEMORY, NONE or READ or EXEC or WRITE)"),
    ("mremap", "mremap(MEMORY, SIZE, [MEMORY], [NOMOVE or DONTUNMAP])"),
    ("madvise", "madvise(MEMORY, ADVICE)"),
    ("mlock", "mlock(MEMORY, [ONFAULT])"),
    ("munlock", "munlock(MEMORY)"),
    ("msync", "msync(MEMORY)"),
    ("mbind", "mbind(MEMORY, NODE, [MOVE or MOVE_ALL])"),
    ("mincore", "mincore(MEMORY)"),
    ("write", "write(MEMORY)"),
    ("read", "read(MEMORY)"),
    ("check", "check(MEMORY)"),
    ("sleep", "sleep(TIME)"),
    ("compute", "compute(TIME)"),
    ("barrier", "barrier(TASKS)"),
    ("cpu_offline", "cpu_offline(CPU)"),
    ("cpu_online", "cpu_online(CPU)"),
    ("memfd_create", "memfd_create(SIZE)"),
    ("posix_fadvise", "posix_fadvise(FILE, DONTNEED or WILLNEED)"),
    ("close", "close(FILE or DESCRIPTOR)"),
    ("exec", "exec()"),
    ("wait", "wait(PROCESS), or wait() for all children"),
    ("join", "join(THREAD), or join() for all threads"),
    ("kill", "kill(PROCESS)"),
    ("pidfd_open", "pidfd_open(PROCESS)"),
    ("process_mrelease", "process_mrelease(DESCRIPTOR)"),
    ("process_vm_readv", "process_vm_readv(PROCESS, MEMORY, MEMORY)"),
    ("oom_score_adj", "oom_score_adj(PROCESS, NUMBER)"),
    ("mkdir", "mkdir(GROUP) or mkdir(GROUP[NUMBER])"),
    ("rmdir", "rmdir(GROUP) or rmdir(GROUP[NUMBER])"),
    ("rand", "rand(END), or rand(BEGIN, END)"),
    ("size", "size(MEMORY or FILE)"),
    ("pages", "pages(MEMORY or FILE)"),
    ("min", "min(A, B)"),
    ("max", "max(A, B)"),
];

/// Returns the names of all calls of the language.
pub fn call_names() -> impl Iterator<Item = &'static str> + Clone {
    CALLS.iter().map(|(name, _)| *name)
}

/// The names of all advice.
const ADVICE: [(&str, Advice); 21] = [
    ("DONTNEED", Advice::DontNeed),
    ("FREE", Advice::Free),
    ("COLD", Advice::Cold),
    ("PAGEOUT", Advice::PageOut),
    ("POPULATE_READ", Advice::PopulateRead),
    ("POPULATE_WRITE", Advice::PopulateWrite),
    ("WILLNEED", Advice::WillNeed),
    ("COLLAPSE", Advice::Collapse),
    ("HUGEPAGE", Advice::HugePage),
    ("NOHUGEPAGE", Advice::NoHugePage),
    ("DONTFORK", Advice::DontFork),
    ("DOFORK", Advice::DoFork),
    ("WIPEONFORK", Advice::WipeOnFork),
    ("KEEPONFORK", Advice::KeepOnFork),
    ("NORMAL", Advice::Normal),
    ("RANDOM", Advice::Random),
    ("SEQUENTIAL", Advice::Sequential),
    ("MERGEABLE", Advice::Mergeable),
    ("UNMERGEABLE", Advice::Unmergeable),
    ("DONTDUMP", Advice::DontDump),
    ("DODUMP", Advice::DoDump),
];

const _: () = assert!(ADVICE.len() == Advice::ALL.len());

/// The arguments of a call: values first, then flags in capital letters.
struct Args<'a> {
    call: &'a Call,
    values: &'a [Expr],
    flags: Vec<(&'a str, usize)>,
}

/// Returns the name of a flag: capital letters, without the prefix that C gives it.
pub(crate) fn flag(expr: &Expr) -> Option<&str> {
    let ExprKind::Name(name) = &expr.kind else { return None };
    let is_flag = |name: &str| name.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    let prefixes = ["MADV_", "POSIX_FADV_", "MAP_", "PROT_", "MREMAP_", "MLOCK_", "MPOL_MF_"];
    let short = prefixes.iter().find_map(|prefix| name.strip_prefix(prefix));
    is_flag(name).then(|| short.unwrap_or(name))
}

impl<'a> Args<'a> {
    fn of(call: &'a Call) -> Self {
        let first = call.args.iter().position(|arg| flag(arg).is_some());
        let (values, flags) = call.args.split_at(first.unwrap_or(call.args.len()));
        // An argument behind a flag that is none is reported as one of a wrong name.
        let flags = flags.iter().map(|arg| (flag(arg).unwrap_or("a value"), arg.at)).collect();
        Self { call, values, flags }
    }
    /// Takes the only flag that is allowed to be there.
    fn one_of<T: Copy>(&self, known: &[(&str, T)]) -> Done<Option<T>> {
        let mut found = None;
        for (name, at) in &self.flags {
            let given = known.iter().find(|(other, _)| other == name);
            let Some((_, value)) = given else {
                let names = known.iter().map(|(name, _)| *name);
                return wrong(*at, unknown("flag", name, names));
            };
            if found.replace(*value).is_some() {
                return wrong(*at, format!("`{}` takes one flag", self.call.name.text));
            }
        }
        Ok(found)
    }
    fn usage<T>(&self) -> Done<T> {
        let name = &self.call.name;
        let usage = CALLS.iter().find(|(known, _)| *known == name.text).map_or("", |(_, how)| how);
        wrong(name.at, format!("the arguments do not fit; use {usage}"))
    }
    fn flagless(&self) -> Done<()> {
        self.one_of::<()>(&[]).map(|_| ())
    }
}

impl Compiler<'_> {
    /// Compiles a call. Its value is stored in `to`. Returns the type of the value.
    pub(super) fn function(&mut self, call: &Call, to: Slot) -> Done<Option<Type>> {
        let args = Args::of(call);
        if let Some(done) = self.of_memory(&args, to)? {
            return Ok(done);
        }
        if let Some(done) = self.of_tasks(&args, to)? {
            return Ok(done);
        }
        if let Some(of) = self.of_values(&args, to)? {
            return Ok(Some(of));
        }
        let names = CALLS.iter().map(|(name, _)| *name);
        let programs = self.tree.programs.iter().map(|(name, _)| name.text.as_str());
        let names = names.chain(programs);
        Err(Wrong { at: call.name.at, what: unknown("call", &call.name.text, names) })
    }

    /// Compiles the values of a call, which must have these types.
    fn values<const N: usize>(&mut self, args: &Args<'_>, types: [Type; N]) -> Done<[Slot; 3]> {
        if args.values.len() != N {
            return args.usage();
        }
        let mut slots = [NONE; 3];
        for ((slot, value), of) in slots.iter_mut().zip(args.values).zip(types) {
            *slot = self.typed(value, of)?;
        }
        Ok(slots)
    }

    /// Compiles a call that has values of these types and no value of its own.
    fn plain<const N: usize>(
        &mut self,
        args: &Args<'_>,
        types: [Type; N],
        verb: Verb,
    ) -> Done<Option<Option<Type>>> {
        let slots = self.values(args, types)?;
        self.call(verb, slots, NONE, args.call.name.at)?;
        Ok(Some(None))
    }

    /// Compiles calls on memory. `None`: it is another call.
    fn of_memory(&mut self, args: &Args<'_>, to: Slot) -> Done<Option<Option<Type>>> {
        use Type::{Memory, Number, Size};
        let at = args.call.name.at;
        match args.call.name.text.as_str() {
            "mmap" => self.mmap(args, to),
            "mremap" => self.mremap(args, to),
            "mprotect" => {
                let prots = [
                    ("NONE", Prot::None),
                    ("READ", Prot::Read),
                    ("EXEC", Prot::ReadExec),
                    ("WRITE", Prot::ReadWrite),
                ];
                let Some(prot) = args.one_of(&prots)? else { return args.usage() };
                self.plain(args, [Memory], Verb::Mprotect(prot))
            }
            "madvise" => {
                let Some(advice) = args.one_of(&ADVICE)? else { return args.usage() };
                self.plain(args, [Memory], Verb::Madvise(advice))
            }
            "mlock" => {
                let what = args.one_of(&[("ONFAULT", LockWhat::OnFault)])?;
                self.plain(args, [Memory], Verb::Mlock(what.unwrap_or(LockWhat::Everything)))
            }
            "mbind" => {
                let present = [("MOVE", Present::Move), ("MOVE_ALL", Present::MoveAll)];
                let present = args.one_of(&present)?.unwrap_or(Present::Stay);
                self.plain(args, [Memory, Number], Verb::Mbind(present))
            }
            "mincore" => {
                args.flagless()?;
                let slots = self.values(args, [Memory])?;
                self.call(Verb::Mincore, slots, to, at)?;
                Ok(Some(Some(Number)))
            }
            "memfd_create" => {
                args.flagless()?;
                let slots = self.values(args, [Size])?;
                self.call(Verb::File(Backing::Memory), slots, to, at)?;
                Ok(Some(Some(Type::File)))
            }
            "posix_fadvise" => {
                let advice =
                    [("DONTNEED", FileAdvice::DontNeed), ("WILLNEED", FileAdvice::WillNeed)];
                let Some(advice) = args.one_of(&advice)? else { return args.usage() };
                self.plain(args, [Type::File], Verb::Fadvise(advice))
            }
            name => {
                let verbs = [
                    ("munmap", Verb::Munmap),
                    ("munlock", Verb::Munlock),
                    ("msync", Verb::Msync),
                    ("write", Verb::Write),
                    ("read", Verb::Read),
                    ("check", Verb::Check),
                ];
                let Some((_, verb)) = verbs.iter().find(|(known, _)| *known == name) else {
                    return Ok(None);
                };
                args.flagless()?;
                self.plain(args, [Memory], *verb)
            }
        }
    }

    fn mmap(&mut self, args: &Args<'_>, to: Slot) -> Done<Option<Option<Type>>> {
        let at = args.call.name.at;
        let mut how = Mapping {
            prot: Prot::ReadWrite,
            populate: Populate::OnTouch,
            share: None,
            place: Where::Any,
        };
        let mut noreplace = false;
        for &(name, at) in &args.flags {
            match name {
                "POPULATE" => how.populate = Populate::Now,
                "LOCKED" => how.populate = Populate::Locked,
                "SHARED" => how.share = Some(Share::Shared),
                "PRIVATE" => how.share = Some(Share::Private),
                "READ" => how.prot = Prot::Read,
                "EXEC" => how.prot = Prot::ReadExec,
                "NONE" => how.prot = Prot::None,
                "WRITE" => how.prot = Prot::ReadWrite,
                "FIXED_NOREPLACE" => noreplace = true,
                other => {
                    let known = [
                        "POPULATE",
                        "LOCKED",
                        "SHARED",
                        "PRIVATE",
                        "READ",
                        "EXEC",
                        "NONE",
                        "WRITE",
                        "FIXED_NOREPLACE",
                    ];
                    return wrong(at, unknown("flag", other, known));
                }
            }
        }
        let given = args.values.iter().map(|value| self.expr(value)).collect::<Done<Vec<_>>>()?;
        let (slots, is_file) = match given[..] {
            [(size, Type::Size)] => ([size, NONE, NONE], false),
            [(memory, Type::Memory)] => ([memory, NONE, NONE], false),
            [(file, Type::File)] => ([NONE, file, NONE], true),
            [(memory, Type::Memory), (file, Type::File)] => ([memory, file, NONE], true),
            _ => return args.usage(),
        };
        let fixed = matches!(given[0].1, Type::Memory);
        how.place = match (fixed, noreplace) {
            (true, false) => Where::Fixed,
            (true, true) => Where::Free,
            (false, false) => Where::Any,
            (false, true) => return wrong(at, "FIXED_NOREPLACE needs memory to say where"),
        };
        match (is_file, how.share) {
            (true, None) => return wrong(at, "a mapping of a file is SHARED or PRIVATE; add one"),
            (false, Some(Share::Shared)) => {
                return wrong(
                    at,
                    "shared memory needs a file; use mmap(memfd_create(SIZE), SHARED)",
                );
            }
            (false, _) => how.share = None,
            (true, Some(_)) => {}
        }
        self.call(Verb::Mmap(how), slots, to, at)?;
        Ok(Some(Some(Type::Memory)))
    }

    fn mremap(&mut self, args: &Args<'_>, to: Slot) -> Done<Option<Option<Type>>> {
        use Type::{Memory, Size};
        let moves = [("MAYMOVE", Move::Anywhere), ("NOMOVE", Move::No), ("DONTUNMAP", Move::Leave)];
        let given = args.one_of(&moves)?;
        let (slots, how) = match (args.values.len(), given) {
            (3, None) => (self.values(args, [Memory, Size, Memory])?, Move::To),
            (3, Some(_)) => return args.usage(),
            _ => (self.values(args, [Memory, Size])?, given.unwrap_or(Move::Anywhere)),
        };
        self.call(Verb::Mremap(how), slots, to, args.call.name.at)?;
        Ok(Some(Some(Memory)))
    }

    /// Compiles calls on tasks, CPUs and time. `None`: it is another call.
    fn of_tasks(&mut self, args: &Args<'_>, to: Slot) -> Done<Option<Option<Type>>> {
        use Type::{Memory, Number, Pidfd, Process, Thread, Time};
        let verb = match args.call.name.text.as_str() {
            "sleep" => return self.plain(args, [Time], Verb::Sleep),
            "compute" => return self.plain(args, [Time], Verb::Compute),
            "barrier" => return self.plain(args, [Number], Verb::Barrier),
            "cpu_offline" => return self.plain(args, [Number], Verb::CpuOffline),
            "cpu_online" => return self.plain(args, [Number], Verb::CpuOnline),
            "exec" => return self.plain(args, [], Verb::Exec),
            "wait" if args.values.is_empty() => return self.plain(args, [], Verb::WaitAll),
            "wait" => return self.plain(args, [Process], Verb::Wait),
            "join" if args.values.is_empty() => return self.plain(args, [], Verb::JoinAll),
            "join" => return self.plain(args, [Thread], Verb::Join),
            "kill" => return self.plain(args, [Process], Verb::Kill),
            "process_mrelease" => return self.plain(args, [Pidfd], Verb::Mrelease),
            "oom_score_adj" => return self.plain(args, [Process, Number], Verb::OomScoreAdj),
            "mkdir" => return self.of_group(args, Verb::Mkdir),
            "rmdir" => return self.of_group(args, Verb::Rmdir),
            "close" => Verb::Close,
            "pidfd_open" => Verb::PidfdOpen,
            "process_vm_readv" => Verb::VmReadv,
            _ => return Ok(None),
        };
        args.flagless()?;
        let at = args.call.name.at;
        if let Verb::PidfdOpen = verb {
            let slots = self.values(args, [Process])?;
            self.call(verb, slots, to, at)?;
            return Ok(Some(Some(Pidfd)));
        }
        if let Verb::VmReadv = verb {
            let slots = self.values(args, [Process, Memory, Memory])?;
            self.call(verb, slots, to, at)?;
            return Ok(Some(Some(Memory)));
        }
        let [value] = args.values else { return args.usage() };
        match self.expr(value)? {
            (slot, Type::File | Pidfd) => {
                self.call(verb, [slot, NONE, NONE], NONE, at)?;
                Ok(Some(None))
            }
            _ => args.usage(),
        }
    }

    /// Compiles a call on a memory group.
    fn of_group(&mut self, args: &Args<'_>, verb: Verb) -> Done<Option<Option<Type>>> {
        args.flagless()?;
        let [of] = args.values else { return args.usage() };
        let (name, index) = match &of.kind {
            ExprKind::Page(parts) => (&parts[0], Some(&parts[1])),
            _ => (of, None),
        };
        let ExprKind::Name(text) = &name.kind else { return args.usage() };
        let name = Name { text: text.clone(), at: name.at };
        let group = self.memory_group(&name, index)?;
        self.call(verb, [group, NONE, NONE], NONE, args.call.name.at)?;
        Ok(Some(None))
    }

    /// Compiles functions of values. `None`: it is another call.
    fn of_values(&mut self, args: &Args<'_>, to: Slot) -> Done<Option<Type>> {
        let at = args.call.name.at;
        let name = args.call.name.text.as_str();
        if !["rand", "size", "pages", "min", "max"].contains(&name) {
            return Ok(None);
        }
        args.flagless()?;
        let given = args.values.iter().map(|value| self.expr(value)).collect::<Done<Vec<_>>>()?;
        let is_scalar = |of: Type| matches!(of, Type::Number | Type::Size | Type::Time);
        let (code, of) = match (name, &given[..]) {
            ("rand", &[(until, of)]) if is_scalar(of) => {
                let from = self.number(0, at)?;
                (Code::Random { to, from, until }, of)
            }
            ("rand", &[(from, of), (until, other)]) if of == other && is_scalar(of) => {
                (Code::Random { to, from, until }, of)
            }
            ("size" | "pages", &[(of, Type::Memory | Type::File)]) => {
                let pages = name == "pages";
                (Code::Measure { to, of, pages }, if pages { Type::Number } else { Type::Size })
            }
            ("min" | "max", &[(a, of), (b, other)]) if of == other && is_scalar(of) => {
                (Code::Pick { to, larger: name == "max", a, b }, of)
            }
            _ => return args.usage(),
        };
        self.emit(code, at)?;
        Ok(Some(of))
    }
}
