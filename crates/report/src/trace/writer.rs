//! Packets of a trace: tracks and the events on them.

use std::collections::BTreeSet;

use mmscale_document::plain;

use super::message::{
    CounterDescriptor, Kind, ProcessDescriptor, ThreadDescriptor, Trace, TracePacket,
    TrackDescriptor, TrackEvent,
};

/// The process that all CPUs are threads of, and its track.
const PID: i32 = 1;
const PROCESS: u64 = 1;
/// The first track of counters; those of CPUs are below.
const COUNTERS: u64 = 1 << 40;
/// Tracks of one CPU.
const PER_CPU: u64 = 1 << 16;
/// All packets are of one writer.
const SEQUENCE: u32 = 1;

/// A track of a CPU.
#[derive(Clone, Copy)]
pub(super) enum CpuTrack {
    /// Its tasks and functions.
    Path,
    Wait,
    Handover,
    Interrupt,
    /// Its holds; those that overlap have different numbers.
    Hold(u64),
}

impl CpuTrack {
    /// Returns the track's number in the trace.
    pub(super) fn of(self, cpu: u32) -> u64 {
        let place = match self {
            Self::Path => 0,
            Self::Wait => 1,
            Self::Handover => 2,
            Self::Interrupt => 3,
            Self::Hold(level) => 4 + level,
        };
        (u64::from(cpu) + 1) * PER_CPU + place
    }
}

/// Returns the number of a CPU as a thread. 0 would be the idle task.
pub(super) fn tid(cpu: u32) -> i32 {
    cpu as i32 + 1
}

/// A trace that is being written.
pub(super) struct Writer {
    packets: Vec<TracePacket>,
    tracks: BTreeSet<u64>,
    flows: u64,
}

impl Writer {
    pub(super) fn new(process_name: &str) -> Self {
        let mut writer = Self { packets: vec![], tracks: BTreeSet::new(), flows: 0 };
        let process = ProcessDescriptor {
            pid: Some(PID),
            process_name: Some(plain(process_name).into_owned()),
        };
        writer.describe(TrackDescriptor {
            uuid: Some(PROCESS),
            process: Some(process),
            ..TrackDescriptor::default()
        });
        writer
    }

    /// Adds a CPU, as a thread.
    pub(super) fn cpu(&mut self, cpu: u32) {
        let thread = ThreadDescriptor {
            pid: Some(PID),
            tid: Some(tid(cpu)),
            thread_name: Some(format!("CPU {cpu}")),
        };
        self.describe(TrackDescriptor {
            uuid: Some(CpuTrack::Path.of(cpu)),
            parent_uuid: Some(PROCESS),
            thread: Some(thread),
            ..TrackDescriptor::default()
        });
    }

    /// Returns a track below that of a CPU, and adds it if it is new.
    pub(super) fn child(&mut self, track: CpuTrack, cpu: u32, name: &str) -> u64 {
        let uuid = track.of(cpu);
        if self.tracks.insert(uuid) {
            self.describe(TrackDescriptor {
                uuid: Some(uuid),
                parent_uuid: Some(CpuTrack::Path.of(cpu)),
                name: Some(format!("CPU {cpu} {name}")),
                ..TrackDescriptor::default()
            });
        }
        uuid
    }

    /// Adds a counter.
    pub(super) fn counter(&mut self, number: u64, name: &str) -> u64 {
        let uuid = COUNTERS + number;
        self.describe(TrackDescriptor {
            uuid: Some(uuid),
            parent_uuid: Some(PROCESS),
            name: Some(name.to_owned()),
            counter: Some(CounterDescriptor {}),
            ..TrackDescriptor::default()
        });
        uuid
    }

    pub(super) fn new_flow(&mut self) -> u64 {
        self.flows += 1;
        self.flows
    }

    pub(super) fn begin(&mut self, track: u64, ps: u64, name: &str) {
        let name = Some(name.to_owned());
        self.event(track, ps, Kind::SliceBegin, TrackEvent { name, ..TrackEvent::default() });
    }

    pub(super) fn end(&mut self, track: u64, ps: u64) {
        self.event(track, ps, Kind::SliceEnd, TrackEvent::default());
    }

    /// Adds a moment, which begins an arrow, ends one, or neither.
    pub(super) fn instant(
        &mut self,
        track: u64,
        ps: u64,
        name: &str,
        begins: Option<u64>,
        ends: Option<u64>,
    ) {
        let event = TrackEvent {
            name: Some(name.to_owned()),
            flow_ids: begins.into_iter().collect(),
            terminating_flow_ids: ends.into_iter().collect(),
            ..TrackEvent::default()
        };
        self.event(track, ps, Kind::Instant, event);
    }

    pub(super) fn count(&mut self, track: u64, ps: u64, value: i64) {
        let event = TrackEvent { counter_value: Some(value), ..TrackEvent::default() };
        self.event(track, ps, Kind::Counter, event);
    }

    fn event(&mut self, track: u64, ps: u64, kind: Kind, event: TrackEvent) {
        let event = TrackEvent { r#type: Some(kind.into()), track_uuid: Some(track), ..event };
        self.packets.push(TracePacket {
            timestamp: Some(ps / 1000),
            trusted_packet_sequence_id: Some(SEQUENCE),
            track_event: Some(event),
            track_descriptor: None,
        });
    }

    fn describe(&mut self, track: TrackDescriptor) {
        self.packets.push(TracePacket {
            timestamp: None,
            trusted_packet_sequence_id: Some(SEQUENCE),
            track_event: None,
            track_descriptor: Some(track),
        });
    }

    /// Returns the trace: descriptions of tracks, then events in the order of time. Those of one
    /// time keep their order.
    pub(super) fn finish(mut self) -> Trace {
        self.packets.sort_by_key(|packet| packet.timestamp);
        Trace { packet: self.packets }
    }
}
