//! A timeline as a trace for Perfetto, as a story in a few lines, and as folded stacks.

mod folded;
mod message;
mod story;
mod writer;

use std::collections::BTreeMap;

use mmscale_document::{Interval, LockName, Stretch, Timeline, WaitSpan};
use prost::Message;

pub use folded::folded;
pub use story::story;
use writer::{CpuTrack, Writer};

/// Formats a timeline as a trace for Perfetto: a thread for each CPU with its tasks and functions,
/// tracks below it with its waits and holds, the queue of each lock as a counter, and arrows from
/// the CPU that hands a lock over to the next one, and from the sender of an interrupt to its
/// target.
pub fn perfetto(timeline: &Timeline) -> Vec<u8> {
    let mut writer = Writer::new("mmscale: CPUs in virtual time");
    let mut cpus: Vec<u32> = timeline.stretches.iter().map(|stretch| stretch.cpu).collect();
    cpus.extend(timeline.waits.iter().flat_map(|wait| [wait.cpu, wait.from_cpu]));
    cpus.extend(timeline.holds.iter().map(|hold| hold.cpu));
    cpus.extend(timeline.interrupts.iter().flat_map(|sent| [sent.from_cpu, sent.to_cpu]));
    cpus.sort_unstable();
    cpus.dedup();
    cpus.iter().for_each(|&cpu| writer.cpu(cpu));
    paths(&mut writer, &timeline.stretches);
    waits(&mut writer, timeline);
    holds(&mut writer, timeline);
    interrupts(&mut writer, timeline);
    queues(&mut writer, &timeline.waits);
    writer.finish().encode_to_vec()
}

/// Writes tasks and functions: what two stretches that follow one another share goes on.
fn paths(writer: &mut Writer, stretches: &[Stretch]) {
    for of_cpu in stretches.chunk_by(|a, b| a.cpu == b.cpu) {
        let track = CpuTrack::Path.of(of_cpu[0].cpu);
        let mut open: Vec<String> = vec![];
        let mut until = 0;
        for stretch in of_cpu {
            let names = names(stretch);
            let shared = match stretch.at.from_ps == until {
                true => open.iter().zip(&names).take_while(|(a, b)| a == b).count(),
                false => 0,
            };
            while open.len() > shared {
                open.pop();
                writer.end(track, until);
            }
            for name in &names[shared..] {
                writer.begin(track, stretch.at.from_ps, name);
                open.push(name.clone());
            }
            until = stretch.at.to_ps;
        }
        open.iter().for_each(|_| writer.end(track, until));
    }
}

/// Returns the names of a stretch, outermost first.
fn names(stretch: &Stretch) -> Vec<String> {
    let task = stretch.task.map_or("idle".to_owned(), |task| format!("task {task}"));
    [task].into_iter().chain(stretch.path.iter().cloned()).collect()
}

/// Writes waits in the words that Perfetto's views of lock contention know: `Lock contention on L
/// (owner tid: T)`.
fn waits(writer: &mut Writer, timeline: &Timeline) {
    let mut holds = BTreeMap::<(u32, &LockName), Vec<Interval>>::new();
    for hold in &timeline.holds {
        holds.entry((hold.cpu, &hold.lock)).or_default().push(hold.at);
    }
    for wait in &timeline.waits {
        let track = writer.child(CpuTrack::Wait, wait.cpu, "waits");
        let owner = writer::tid(wait.from_cpu);
        let name = format!("Lock contention on {} (owner tid: {owner})", wait.lock);
        writer.begin(track, wait.at.from_ps, &name);
        writer.end(track, wait.at.to_ps);
        let flow = writer.new_flow();
        // The holder releases it before the waiter has the lock.
        let of_holder = holds.get(&(wait.from_cpu, &wait.lock)).into_iter().flatten();
        let within = wait.at.from_ps..=wait.at.to_ps;
        let released = of_holder.map(|hold| hold.to_ps).filter(|ps| within.contains(ps)).max();
        if let Some(released) = released {
            let from = writer.child(CpuTrack::Handover, wait.from_cpu, "handoffs");
            let to = writer.child(CpuTrack::Handover, wait.cpu, "handoffs");
            let gives = format!("gives {} to CPU {}", wait.lock, wait.cpu);
            writer.instant(from, released, &gives, Some(flow), None);
            let gets = format!("gets {} from CPU {}", wait.lock, wait.from_cpu);
            writer.instant(to, wait.at.to_ps, &gets, None, Some(flow));
        }
    }
}

/// Writes holds. Those of one CPU that overlap without being nested get tracks of their own.
fn holds(writer: &mut Writer, timeline: &Timeline) {
    for of_cpu in timeline.holds.chunk_by(|a, b| a.cpu == b.cpu) {
        let mut free_at: Vec<u64> = vec![];
        for hold in of_cpu {
            let level = free_at.iter().position(|&free| free <= hold.at.from_ps);
            let level = level.unwrap_or_else(|| {
                free_at.push(0);
                free_at.len() - 1
            });
            free_at[level] = hold.at.to_ps;
            let track = writer.child(CpuTrack::Hold(level as u64), hold.cpu, "holds");
            let site = hold.path.last().map_or("", String::as_str);
            let name = format!("holds {} in {site}, misses: {}", hold.lock, hold.misses);
            writer.begin(track, hold.at.from_ps, &name);
            writer.end(track, hold.at.to_ps);
        }
    }
}

fn interrupts(writer: &mut Writer, timeline: &Timeline) {
    for sent in &timeline.interrupts {
        let flow = writer.new_flow();
        let from = writer.child(CpuTrack::Interrupt, sent.from_cpu, "interrupts");
        let to = writer.child(CpuTrack::Interrupt, sent.to_cpu, "interrupts");
        let sends = format!("sends IPI to CPU {}: {}", sent.to_cpu, sent.reason);
        writer.instant(from, sent.at.from_ps, &sends, Some(flow), None);
        let gets = format!("IPI from CPU {}: {}", sent.from_cpu, sent.reason);
        writer.instant(to, sent.at.to_ps, &gets, None, Some(flow));
    }
}

/// Writes how many CPUs wait for each lock.
fn queues(writer: &mut Writer, waits: &[WaitSpan]) {
    let mut steps = BTreeMap::<&LockName, BTreeMap<u64, i64>>::new();
    for wait in waits {
        let of_lock = steps.entry(&wait.lock).or_default();
        *of_lock.entry(wait.at.from_ps).or_default() += 1;
        *of_lock.entry(wait.at.to_ps).or_default() -= 1;
    }
    for (number, (lock, steps)) in steps.into_iter().enumerate() {
        let track = writer.counter(number as u64, &format!("CPUs that wait for {lock}"));
        let mut waiting = 0;
        for (ps, step) in steps {
            waiting += step;
            writer.count(track, ps, waiting);
        }
    }
}
