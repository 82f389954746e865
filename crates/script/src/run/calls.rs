//! Calls of a program.

use super::report::{Kind, MAX_FILES};
use super::value::{File, Memory, Value};
use super::worker::{Started, Stop, Worker};
use crate::ast::TaskKind;
use crate::op::{Mapping, Move, NONE, Slot, Start, Verb, Where};
use mmscale_system::{
    Addr, Errno, Fd, MapSpec, MayMove, PAGE_BYTES, Place, ProcessId, System, ThreadId,
};

/// The identity of the contents of files: all programs see the same.
const FILE_TAG: u64 = 0x6669_6c65 << 20;

/// Accesses between two looks at the clock.
const PAGES_PER_LOOK: u64 = 256;

/// Time between two looks of a task that waits at a barrier, in ns.
const LOOK_NS: u64 = 500;

type Called = Result<(), Stop>;

impl Worker {
    /// Makes a call. Its value is stored in `to`.
    pub(super) fn call<S: System>(
        &mut self,
        system: &S,
        verb: Verb,
        args: [Slot; 3],
        to: Slot,
    ) -> Called {
        match verb {
            Verb::Mmap(_)
            | Verb::Munmap
            | Verb::Mprotect(_)
            | Verb::Mremap(_)
            | Verb::Madvise(_)
            | Verb::Mlock(_)
            | Verb::Munlock
            | Verb::Msync
            | Verb::Mbind(_)
            | Verb::Mincore => {
                self.pending.calls += 1;
                self.on_memory(system, verb, args, to)
            }
            Verb::Write | Verb::Read | Verb::Check => self.access(system, verb, args),
            Verb::Compute => {
                let ns = self.capped(system, args[0])?;
                Ok(system.compute_ns(ns)?)
            }
            Verb::Barrier => self.meet(system, args[0]),
            Verb::WaitAll | Verb::JoinAll | Verb::JoinTeam => self.wait_for_all(system, verb),
            _ => {
                self.pending.calls += 1;
                self.on_tasks(system, verb, args, to)
            }
        }
    }

    fn on_memory<S: System>(
        &mut self,
        system: &S,
        verb: Verb,
        args: [Slot; 3],
        to: Slot,
    ) -> Called {
        if let Verb::Mmap(how) = verb {
            let mapped = self.mmap(system, how, args)?;
            self.set(to, Value::Memory(mapped));
            return Ok(());
        }
        let memory = self.get(args[0]).memory()?;
        let (at, bytes) = (Addr(memory.at), memory.bytes);
        match verb {
            Verb::Munmap => system.munmap(at, bytes)?,
            Verb::Mprotect(prot) => system.mprotect(at, bytes, prot)?,
            Verb::Madvise(advice) => system.madvise(at, bytes, advice)?,
            Verb::Mlock(what) => system.mlock(at, bytes, what)?,
            Verb::Munlock => system.munlock(at, bytes)?,
            Verb::Msync => system.msync(at, bytes)?,
            Verb::Mbind(present) => {
                let node = self.get(args[1]).natural()? as usize;
                system.mbind(at, bytes, node, present)?;
            }
            Verb::Mremap(how) => {
                let new_bytes = self.get(args[1]).natural()?;
                let may_move = match how {
                    Move::No => MayMove::No,
                    Move::Anywhere => MayMove::Anywhere,
                    Move::Leave => MayMove::Leave,
                    Move::To => MayMove::To(Addr(self.get(args[2]).memory()?.at)),
                };
                let at = system.mremap(at, bytes, new_bytes, may_move)?;
                self.set(to, Value::Memory(Memory { at: at.0, bytes: new_bytes, ..memory }));
            }
            _ => {
                let present = system.mincore(at, bytes)?;
                let present = present.iter().filter(|is_present| **is_present).count();
                self.set(to, Value::Number(present as i64));
            }
        }
        Ok(())
    }

    /// Maps memory. Memory that replaces other memory keeps its identity.
    fn mmap<S: System>(
        &mut self,
        system: &S,
        how: Mapping,
        [size, file, _]: [Slot; 3],
    ) -> Result<Memory, Stop> {
        let file = if file == NONE { None } else { Some(self.file(file)?) };
        let (over, mut bytes) = match (size, file) {
            (NONE, Some(file)) => (None, file.bytes),
            (NONE, None) => return Err(Kind::Unset.into()),
            (size, _) if how.place == Where::Any => (None, self.get(size).natural()?),
            (memory, _) => {
                let over = self.get(memory).memory()?;
                (Some(over), over.bytes)
            }
        };
        let place = match (over, how.place) {
            (Some(over), Where::Free) => Place::Free(Addr(over.at)),
            (Some(over), _) => Place::Fixed(Addr(over.at)),
            (None, _) => Place::Any,
        };
        let mut spec = MapSpec { populate: how.populate, ..MapSpec::new(bytes) };
        if let (Some(file), Some(share)) = (file, how.share) {
            bytes = bytes.min(file.bytes);
            spec = MapSpec { bytes, ..spec }.of(file.fd, file.offset, share);
        }
        let at = system.mmap(spec.at(place).prot(how.prot))?;
        let (tag, first) = match (file, over) {
            (Some(file), _) => (FILE_TAG, file.offset / PAGE_BYTES),
            (None, Some(over)) => (over.tag, over.first),
            (None, None) => (self.new_tag(), 0),
        };
        Ok(Memory { at: at.0, bytes, tag, first })
    }

    /// Writes, reads or checks each page of a range.
    fn access<S: System>(&mut self, system: &S, verb: Verb, args: [Slot; 3]) -> Called {
        let memory = self.get(args[0]).memory()?;
        let pages = memory.pages();
        self.pending.accesses += pages;
        for page in 0..pages {
            if page % PAGES_PER_LOOK == PAGES_PER_LOOK - 1
                && system.clock_ns() >= self.times.hard_ns()
            {
                return Err(Stop::End);
            }
            let at = memory.page(page);
            let own = memory.word(page, self.writer);
            let fine = match verb {
                Verb::Write => {
                    system.write(at, own)?;
                    true
                }
                Verb::Read => memory.may_hold(page, system.read(at)?),
                _ => {
                    let found = system.read(at)?;
                    if self.ancestors.iter().any(|writer| found == memory.word(page, *writer)) {
                        return Err(Kind::Inherited(page as i64, pages as i64).into());
                    }
                    found == own
                }
            };
            self.report.damaged += u64::from(!fine);
        }
        Ok(())
    }

    /// Returns a time, cut at the end of the run.
    fn capped<S: System>(&self, system: &S, slot: Slot) -> Result<u64, Kind> {
        let left_ns = self.times.hard_ns().saturating_sub(system.clock_ns());
        Ok(self.get(slot).natural()?.min(left_ns))
    }

    fn file(&self, slot: Slot) -> Result<File, Kind> {
        match self.get(slot) {
            Value::File(file) => Ok(file),
            _ => Err(Kind::Unset),
        }
    }
    fn process(&self, slot: Slot) -> Result<ProcessId, Kind> {
        match self.get(slot) {
            Value::Process(process) => Ok(process),
            _ => Err(Kind::Unset),
        }
    }
    fn thread(&self, slot: Slot) -> Result<ThreadId, Kind> {
        match self.get(slot) {
            Value::Thread(thread) => Ok(thread),
            _ => Err(Kind::Unset),
        }
    }
    fn descriptor(&self, slot: Slot) -> Result<Fd, Kind> {
        match self.get(slot) {
            Value::Pidfd(fd) => Ok(fd),
            Value::File(file) => Ok(file.fd),
            _ => Err(Kind::Unset),
        }
    }

    fn on_tasks<S: System>(
        &mut self,
        system: &S,
        verb: Verb,
        args: [Slot; 3],
        result: Slot,
    ) -> Called {
        let [first, second, third] = args;
        match verb {
            Verb::Sleep => system.sleep_ns(self.capped(system, first)?)?,
            Verb::CpuOffline => system.cpu_offline(self.get(first).natural()? as usize)?,
            Verb::CpuOnline => system.cpu_online(self.get(first).natural()? as usize)?,
            Verb::File(backing) => {
                let bytes = self.get(first).natural()?;
                if self.files >= MAX_FILES {
                    return Err(Kind::Files.into());
                }
                let fd = system.file(bytes, backing)?;
                self.files += 1;
                self.set(result, Value::File(File { fd, offset: 0, bytes }));
            }
            Verb::Fadvise(advice) => {
                let File { fd, offset, bytes } = self.file(first)?;
                system.fadvise(fd, offset, bytes, advice)?;
            }
            Verb::Close => {
                system.close(self.descriptor(first)?)?;
                let is_file = matches!(self.get(first), Value::File(_));
                self.files = self.files.saturating_sub(u32::from(is_file));
            }
            Verb::Exec => {
                system.exec()?;
                self.forget_memory();
            }
            Verb::Wait => {
                let process = self.process(first)?;
                let seat = remove(&mut self.children, process);
                self.release_seat(Start::Task(TaskKind::Fork), seat);
                system.wait(process)?;
            }
            Verb::Join => {
                let thread = self.thread(first)?;
                let seat = remove(&mut self.threads, thread);
                self.release_seat(Start::Task(TaskKind::Thread), seat);
                system.join(thread)?;
            }
            Verb::Kill => system.kill(self.process(first)?)?,
            Verb::PidfdOpen => {
                let fd = system.pidfd_open(self.process(first)?)?;
                self.set(result, Value::Pidfd(fd));
            }
            Verb::VmReadv => {
                let process = self.process(first)?;
                let (from, to) = (self.get(second).memory()?, self.get(third).memory()?);
                let bytes = from.pages().min(to.pages()) * PAGE_BYTES;
                let (at, into) = (Addr(from.at), Addr(to.at));
                let bytes = system.process_vm_readv(process, at, bytes, into)?;
                self.set(result, Value::Memory(Memory { at: to.at, bytes, ..from }));
            }
            Verb::Mrelease => system.process_mrelease(self.descriptor(first)?, 0)?,
            Verb::OomScoreAdj => {
                let score = i32::try_from(self.number(second)?);
                let score = score.map_err(|_| Kind::Call(Errno::Inval))?;
                system.set_oom_score_adj(self.process(first)?, score)?;
            }
            Verb::Mkdir | Verb::Rmdir => {
                let group = self.get(first).natural()? as usize;
                // All processes are in the root, whose number is 0, if there are no others.
                match verb {
                    _ if group == 0 => {}
                    Verb::Mkdir => system.make_group(group)?,
                    _ => system.remove_group(group)?,
                }
            }
            // `call` has the others.
            _ => {}
        }
        Ok(())
    }

    /// Waits until as many tasks have called this, or a multiple of them: computes, and looks again
    /// and again. The program ends if the run does meanwhile.
    fn meet<S: System>(&mut self, system: &S, tasks: Slot) -> Called {
        let tasks = self.get(tasks).natural()?;
        if tasks == 0 {
            return Err(Kind::Call(Errno::Inval).into());
        }
        system.take_turn();
        let all = self.sink.arrive().div_ceil(tasks) * tasks;
        loop {
            system.take_turn();
            if self.sink.arrivals() >= all {
                return Ok(());
            }
            if system.clock_ns() >= self.times.until_ns {
                return Err(Stop::End);
            }
            system.compute_ns(LOOK_NS)?;
        }
    }

    /// Waits for all children or threads.
    fn wait_for_all<S: System>(&mut self, system: &S, verb: Verb) -> Called {
        if let Verb::WaitAll = verb {
            for (child, seat) in std::mem::take(&mut self.children) {
                self.release_seat(Start::Task(TaskKind::Fork), seat);
                self.pending.calls += 1;
                system.wait(child)?;
            }
            return Ok(());
        }
        let list = if let Verb::JoinAll = verb { &mut self.threads } else { &mut self.team };
        for (thread, seat) in std::mem::take(list) {
            self.release_seat(Start::Team, seat);
            self.pending.calls += 1;
            system.join(thread)?;
        }
        Ok(())
    }
}

/// Removes a task from those that were not waited for. Returns its seat; 0 if it is not there.
fn remove<T: PartialEq>(started: &mut Started<T>, task: T) -> usize {
    let at = started.iter().position(|(other, _)| *other == task);
    at.map_or(0, |at| started.remove(at).1)
}
