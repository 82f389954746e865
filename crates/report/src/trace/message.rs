//! The messages of Perfetto's trace format that a trace needs, with the field numbers of its
//! published definitions (`protos/perfetto/trace` of Perfetto: `trace_packet.proto`,
//! `track_event/track_event.proto`, `track_event/track_descriptor.proto`).

use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(super) struct Trace {
    #[prost(message, repeated, tag = "1")]
    pub(super) packet: Vec<TracePacket>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TracePacket {
    /// In ns.
    #[prost(uint64, optional, tag = "8")]
    pub(super) timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "10")]
    pub(super) trusted_packet_sequence_id: Option<u32>,
    #[prost(message, optional, tag = "11")]
    pub(super) track_event: Option<TrackEvent>,
    #[prost(message, optional, tag = "60")]
    pub(super) track_descriptor: Option<TrackDescriptor>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TrackDescriptor {
    #[prost(uint64, optional, tag = "1")]
    pub(super) uuid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    pub(super) name: Option<String>,
    #[prost(message, optional, tag = "3")]
    pub(super) process: Option<ProcessDescriptor>,
    #[prost(message, optional, tag = "4")]
    pub(super) thread: Option<ThreadDescriptor>,
    #[prost(uint64, optional, tag = "5")]
    pub(super) parent_uuid: Option<u64>,
    #[prost(message, optional, tag = "8")]
    pub(super) counter: Option<CounterDescriptor>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ProcessDescriptor {
    #[prost(int32, optional, tag = "1")]
    pub(super) pid: Option<i32>,
    #[prost(string, optional, tag = "6")]
    pub(super) process_name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ThreadDescriptor {
    #[prost(int32, optional, tag = "1")]
    pub(super) pid: Option<i32>,
    #[prost(int32, optional, tag = "2")]
    pub(super) tid: Option<i32>,
    #[prost(string, optional, tag = "5")]
    pub(super) thread_name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CounterDescriptor {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TrackEvent {
    #[prost(enumeration = "Kind", optional, tag = "9")]
    pub(super) r#type: Option<i32>,
    #[prost(uint64, optional, tag = "11")]
    pub(super) track_uuid: Option<u64>,
    #[prost(string, optional, tag = "23")]
    pub(super) name: Option<String>,
    #[prost(int64, optional, tag = "30")]
    pub(super) counter_value: Option<i64>,
    #[prost(fixed64, repeated, packed = "false", tag = "47")]
    pub(super) flow_ids: Vec<u64>,
    #[prost(fixed64, repeated, packed = "false", tag = "48")]
    pub(super) terminating_flow_ids: Vec<u64>,
}

/// The kind of a track event.
#[derive(Clone, Copy, PartialEq, Eq, Debug, prost::Enumeration)]
#[repr(i32)]
pub(super) enum Kind {
    Unspecified = 0,
    SliceBegin = 1,
    SliceEnd = 2,
    Instant = 3,
    Counter = 4,
}
