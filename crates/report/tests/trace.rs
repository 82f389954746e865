//! Tests of traces, with a decoder of its own: it knows the wire format and the field numbers that
//! Perfetto publishes, and nothing of the program that writes.

use std::collections::BTreeMap;

use mmscale_document::{HoldSpan, Interval, LockName, SentInterrupt, Stretch, Timeline, WaitSpan};
use mmscale_report::{folded, perfetto, story};

/// A field of a message: its number and its value.
#[derive(Clone, Debug, PartialEq)]
enum Field {
    Number(u64),
    Bytes(Vec<u8>),
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first().expect("a whole number");
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return value;
        }
    }
    panic!("a number has at most ten bytes")
}

/// Decodes a message.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Field)> {
    let mut all = vec![];
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let length = match key & 7 {
            0 => {
                all.push((key >> 3, Field::Number(varint(&mut bytes))));
                continue;
            }
            1 => 8,
            2 => varint(&mut bytes) as usize,
            5 => 4,
            other => panic!("wire type {other}"),
        };
        let (value, rest) = bytes.split_at(length);
        bytes = rest;
        all.push(match key & 7 {
            1 => (key >> 3, Field::Number(u64::from_le_bytes(value.try_into().unwrap()))),
            _ => (key >> 3, Field::Bytes(value.to_vec())),
        });
    }
    all
}

fn number(message: &[(u64, Field)], field: u64) -> Option<u64> {
    message.iter().find_map(|(key, value)| match value {
        Field::Number(number) if *key == field => Some(*number),
        _ => None,
    })
}

fn bytes(message: &[(u64, Field)], field: u64) -> Option<&[u8]> {
    message.iter().find_map(|(key, value)| match value {
        Field::Bytes(bytes) if *key == field => Some(bytes.as_slice()),
        _ => None,
    })
}

fn text(message: &[(u64, Field)], field: u64) -> String {
    String::from_utf8(bytes(message, field).unwrap_or_default().to_vec()).unwrap()
}

/// An event of a trace: time in ns, track, kind, name, arrows that it begins and ends, count.
#[derive(Debug)]
struct Event {
    ns: u64,
    track: u64,
    kind: u64,
    name: String,
    begins: Option<u64>,
    ends: Option<u64>,
    count: Option<u64>,
}

/// Decodes a trace: the names of tracks, and the events in their order.
fn decoded(trace: &[u8]) -> (BTreeMap<u64, String>, Vec<Event>) {
    let (mut tracks, mut events) = (BTreeMap::new(), vec![]);
    for (key, packet) in fields(trace) {
        let (1, Field::Bytes(packet)) = (key, packet) else { panic!("field {key}") };
        let packet = fields(&packet);
        assert!(number(&packet, 10).is_some(), "each packet has a sequence");
        if let Some(track) = bytes(&packet, 60) {
            let track = fields(track);
            let name = match (bytes(&track, 3), bytes(&track, 4)) {
                (Some(process), _) => text(&fields(process), 6),
                (_, Some(thread)) => text(&fields(thread), 5),
                _ => text(&track, 2),
            };
            assert_eq!(tracks.insert(number(&track, 1).unwrap(), name), None);
        }
        if let Some(event) = bytes(&packet, 11) {
            let event = fields(event);
            events.push(Event {
                ns: number(&packet, 8).unwrap(),
                track: number(&event, 11).unwrap(),
                kind: number(&event, 9).unwrap(),
                name: text(&event, 23),
                begins: number(&event, 47),
                ends: number(&event, 48),
                count: number(&event, 30),
            });
        }
    }
    (tracks, events)
}

fn names(path: &[&str]) -> Vec<String> {
    path.iter().map(|&name| name.to_owned()).collect()
}

fn ns(from: u64, to: u64) -> Interval {
    Interval { from_ps: from * 1000, to_ps: to * 1000 }
}

fn zone() -> LockName {
    LockName { class: "zone".into(), name: "zone 0".into() }
}

/// CPU 3 holds a lock from 100 to 500; CPU 7 waits for it from 200 to 560, in two functions, with
/// an interrupt from CPU 3.
fn timeline() -> Timeline {
    let stretch = |cpu, task, from, to, path: &[&str]| Stretch {
        cpu,
        task,
        at: ns(from, to),
        path: names(path),
    };
    let wait = WaitSpan {
        cpu: 7,
        lock: zone(),
        at: ns(200, 560),
        path: names(&["mmap", "rmqueue_bulk"]),
        from_cpu: 3,
    };
    Timeline {
        worst: Some(wait.clone()),
        waits: vec![wait],
        holds: vec![
            HoldSpan {
                cpu: 3,
                lock: zone(),
                at: ns(100, 500),
                path: names(&["exit", "free_pcppages_bulk"]),
                misses: 41,
            },
            HoldSpan { cpu: 7, lock: zone(), at: ns(560, 600), ..HoldSpan::default() },
        ],
        stretches: vec![
            stretch(3, Some(5), 0, 90, &["exit"]),
            stretch(3, Some(5), 90, 510, &["exit", "free_pcppages_bulk"]),
            stretch(7, None, 0, 50, &[]),
            stretch(7, Some(9), 50, 150, &["mmap"]),
            stretch(7, Some(9), 150, 600, &["mmap", "rmqueue_bulk"]),
        ],
        interrupts: vec![SentInterrupt {
            reason: "call function".into(),
            from_cpu: 3,
            to_cpu: 7,
            at: ns(300, 400),
        }],
    }
}

#[test]
fn a_trace_has_the_slices_arrows_and_counts_of_its_timeline() {
    let (tracks, events) = decoded(&perfetto(&timeline()));
    let named =
        |name: &str| -> Vec<&Event> { events.iter().filter(|event| event.name == name).collect() };
    let at = |name: &str| {
        let [event] = named(name)[..] else { panic!("{name}: {:?}", named(name)) };
        (event.ns, tracks[&event.track].as_str())
    };
    assert_eq!(at("Lock contention on zone 0 (owner tid: 4)"), (200, "CPU 7 waits"));
    assert_eq!(at("holds zone 0 in free_pcppages_bulk, misses: 41"), (100, "CPU 3 holds"));
    assert_eq!(at("exit"), (0, "CPU 3"));
    assert_eq!(at("free_pcppages_bulk"), (90, "CPU 3"));
    assert_eq!((at("task 5"), at("idle")), ((0, "CPU 3"), (0, "CPU 7")));
    // The arrows: from the release to the grant, and from the sender to the target.
    for (from, to) in [
        ("gives zone 0 to CPU 7", "gets zone 0 from CPU 3"),
        ("sends IPI to CPU 7: call function", "IPI from CPU 3: call function"),
    ] {
        let (from, to) = (named(from)[0], named(to)[0]);
        assert!(from.begins.is_some() && from.begins == to.ends && from.ns < to.ns);
    }
    let counts: Vec<_> = events.iter().filter_map(|event| Some((event.ns, event.count?))).collect();
    assert_eq!(counts, [(200, 1), (560, 0)]);
}

#[test]
fn slices_of_a_track_are_nested_and_times_ascend() {
    let (tracks, events) = decoded(&perfetto(&timeline()));
    let mut open = BTreeMap::<u64, usize>::new();
    for event in &events {
        assert!(tracks.contains_key(&event.track), "{event:?}");
        let open = open.entry(event.track).or_default();
        match event.kind {
            1 => *open += 1,
            2 => *open = open.checked_sub(1).expect("an end has a begin"),
            3 | 4 => {}
            other => panic!("kind {other}"),
        }
    }
    assert!(open.values().all(|&open| open == 0), "{open:?}");
    assert!(events.windows(2).all(|pair| pair[0].ns <= pair[1].ns));
}

#[test]
fn an_empty_timeline_is_a_whole_trace_without_a_story() {
    let (tracks, events) = decoded(&perfetto(&Timeline::default()));
    assert_eq!((tracks.len(), events.len()), (1, 0));
    assert!(story(&Timeline::default()).is_empty());
    assert_eq!(folded(&Timeline::default(), ns(0, 1)), "");
}

#[test]
fn the_story_names_the_holder_its_function_and_its_misses() {
    assert_eq!(
        story(&timeline()),
        [
            "CPU 7 waited 360ns for zone 0 in rmqueue_bulk, since 200ns",
            "  CPU 3 held it for 300ns in free_pcppages_bulk, misses: 41",
            "  on its way from CPU to CPU: 60ns",
            "the longest queue for it in that time: 1 CPU",
        ]
    );
    let mut many = timeline();
    for cpu in 10..40 {
        let from = 500 + u64::from(cpu);
        many.holds.push(HoldSpan {
            cpu,
            lock: zone(),
            at: ns(from, from + 1),
            ..HoldSpan::default()
        });
    }
    let told = story(&many);
    assert!(told.len() <= 10 && told.iter().all(|line| line.len() <= 72), "{told:#?}");
    assert!(told.iter().any(|line| line == "  27 other holds had it for 27ns"), "{told:#?}");
}

#[test]
fn folded_stacks_add_up_to_the_time_of_tasks() {
    let text = folded(&timeline(), ns(0, 1_000));
    assert_eq!(
        text,
        "exit 90\nexit;free_pcppages_bulk 420\nmmap 100\nmmap;rmqueue_bulk 90\n\
         mmap;rmqueue_bulk;waits for zone 360\n"
    );
    let part = folded(&timeline(), ns(0, 90));
    assert_eq!(part, "exit 90\nmmap 40\n");
}
