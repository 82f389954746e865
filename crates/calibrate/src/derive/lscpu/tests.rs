//! Every form, and what is refused.

use super::*;

fn read(text: &str, cluster: Option<usize>) -> Result<Lscpu, String> {
    let file = Text { name: "x.json".to_owned(), text: text.to_owned() };
    Lscpu::read(&file, Given { cluster, ..Given::default() }).map_err(|why| why.to_string())
}

/// Two nodes with two cores each, of two threads, numbered as in Linux: siblings are 4 apart.
fn rows() -> String {
    let row = |cpu: usize| {
        let core = cpu % 4;
        let node = core / 2;
        format!(
            "{{\"cpu\": {cpu}, \"node\": {node}, \"socket\": {node}, \"core\": {core}, \
             \"l1d:l1i:l2:l3\": \"{core}:{core}:{core}:{node}\", \"online\": true}}"
        )
    };
    let rows: Vec<String> = (0..8).map(row).collect();
    format!("{{\"cpus\": [{}]}}", rows.join(","))
}

fn groups(groups: Groups) -> [Option<usize>; 4] {
    [groups.cpus, groups.nodes, groups.cluster, groups.smt]
}

#[test]
fn rows_give_groups_and_the_place_of_each_cpu() {
    let said = read(&rows(), None).unwrap();
    assert_eq!(groups(said.groups), [Some(8), Some(2), Some(4), Some(2)]);
    assert_eq!(said.places.unwrap(), [0, 2, 4, 6, 1, 3, 5, 7]);
}

#[test]
fn words_of_older_versions_are_read_too() {
    let old = rows().replace("\"online\": true", "\"online\": \"yes\"");
    let old = (0..8).fold(old, |text, n| {
        text.replace(&format!("\"cpu\": {n},"), &format!("\"cpu\": \"{n}\","))
    });
    assert_eq!(read(&old, None).unwrap().places.unwrap(), [0, 2, 4, 6, 1, 3, 5, 7]);
}

#[test]
fn cpus_that_are_offline_do_not_count() {
    // Set the second threads of all cores offline.
    let some = (4..8).fold(rows(), |text, cpu| {
        let at = text.find(&format!("\"cpu\": {cpu},")).unwrap();
        let (before, after) = text.split_at(at);
        format!("{before}{}", after.replacen("true", "false", 1))
    });
    let said = read(&some, None).unwrap();
    assert_eq!(groups(said.groups), [Some(4), Some(2), Some(2), Some(1)]);
    let all = rows().replace("true", "false");
    assert!(read(&all, None).unwrap_err().contains("no online CPU"));
}

#[test]
fn without_an_l3_a_node_is_a_cache_unless_the_caller_says_more() {
    let none = rows().replace(":l3", "").replace(":0\"", "\"").replace(":1\"", "\"");
    let said = read(&none, None).unwrap();
    assert_eq!(groups(said.groups), [Some(8), Some(2), Some(4), Some(2)]);
    assert!(said.notes[0].contains("lists no L3"), "{:?}", said.notes);
    let said = read(&none, Some(2)).unwrap();
    assert_eq!((said.groups.cluster, said.notes.len()), (Some(2), 0));
    let why = read(&rows(), Some(2)).unwrap_err();
    assert!(why.contains("last-level caches of 4 CPUs, but --cluster is 2"), "{why}");
}

#[test]
fn counts_give_groups_and_a_name() {
    let text = r#"{"lscpu": [
        {"field": "CPU(s):", "data": "192", "children": [
            {"field": "On-line CPU(s) list:", "data": "0-191"}]},
        {"field": "Vendor ID:", "data": "AuthenticAMD", "children": [
            {"field": "Model name:", "data": "AMD EPYC 9654", "children": [
                {"field": "Thread(s) per core:", "data": "2"}]}]},
        {"field": "NUMA node(s):", "data": "2"},
        {"field": "L3 cache:", "data": "384 MiB (12 instances)"}]}"#;
    let said = read(text, None).unwrap();
    assert_eq!(groups(said.groups), [Some(192), Some(2), Some(16), Some(2)]);
    assert_eq!((said.model.as_deref(), said.places), (Some("AMD EPYC 9654"), None));
    assert_eq!(said.cache_kib, Some(32 << 10));
    let old = text.replace(" (12 instances)", "");
    assert!(read(&old, None).unwrap_err().contains("also give --cluster"));
    assert_eq!(read(&old, Some(16)).unwrap().groups.cluster, Some(16));
}

#[test]
fn machines_and_files_that_cannot_be_used_are_refused() {
    let odd = rows().replace("\"core\": 3,", "\"core\": 2,");
    let why = read(&odd, None).unwrap_err();
    assert!(why.contains("its cores have 2 to 4 CPUs"), "{why}");
    let twice = rows().replace("\"cpu\": 5,", "\"cpu\": 4,");
    assert!(read(&twice, None).unwrap_err().contains("the same CPU number"));
    let less = rows().replacen("\"core\"", "\"kern\"", 1);
    assert!(read(&less, None).unwrap_err().contains("a CPU has no number `core`"));
    assert!(read("{ CPU", None).unwrap_err().contains("it begins as JSON"));
    assert!(read("a machine", None).unwrap_err().contains("no line `CPU(s):`"));
    assert!(read("{}", None).unwrap_err().contains("neither `cpus` nor `lscpu`"));
}

/// A machine whose groups are known.
#[derive(Clone, Copy, Debug)]
struct Known {
    nodes: usize,
    caches: usize,
    cores: usize,
    smt: usize,
    /// CPUs with the highest numbers that are offline.
    offline: usize,
}

impl Known {
    fn cores(self) -> usize {
        self.nodes * self.caches * self.cores
    }
    fn cpus(self) -> usize {
        self.cores() * self.smt
    }
    /// Returns core, cache and node of a CPU: siblings are as many numbers apart as there are
    /// cores, as on most machines.
    fn place(self, cpu: usize) -> [usize; 3] {
        let core = cpu % self.cores();
        [core, core / self.cores, core / self.cores / self.caches]
    }
    fn list(self, node: usize) -> String {
        let of = (0..self.cpus()).filter(|&cpu| self.place(cpu)[2] == node);
        of.map(|cpu| cpu.to_string()).collect::<Vec<_>>().join(",")
    }
    /// Returns the forms with a row for each CPU.
    fn rows(self) -> [(&'static str, String); 4] {
        let (mut json, mut wide, mut parsed) = (vec![], vec![], vec![]);
        for cpu in 0..self.cpus() + self.offline {
            let [core, cache, node] = self.place(cpu);
            if cpu >= self.cpus() {
                json.push(format!(
                    "{{\"cpu\":{cpu},\"node\":-,\"socket\":-,\"core\":-,\"l1d:l1i:l2:l3\":\"-\",\
                     \"online\":false}}"
                ));
                wide.push(format!("{cpu:3}    -      -    - -              no         -"));
                continue;
            }
            json.push(format!(
                "{{\"cpu\":{cpu},\"node\":{node},\"socket\":{node},\"core\":{core},\
                 \"l1d:l1i:l2:l3\":\"{core}:{core}:{core}:{cache}\",\"online\":true}}"
            ));
            wide.push(format!(
                "{cpu:3} {node:4} {node:6} {core:4} {core}:{core}:{core}:{cache} yes 3700,0000"
            ));
            parsed.push(format!("{cpu},{core},{node},{node},,{core},{core},{core},{cache}"));
        }
        let heading = "CPU NODE SOCKET CORE L1d:L1i:L2:L3 ONLINE    MAXMHZ";
        let wide = wide.join("\n");
        let russian = wide.replace(" yes ", " да ").replace(" no ", " нет ");
        let names = "# The parsable format.\n# CPU,Core,Socket,Node,,L1d,L1i,L2,L3";
        [
            ("lscpu -J -e", format!("{{\"cpus\":[{}]}}", json.join(","))),
            ("lscpu -e in Russian", format!("{heading}\n{russian}\n")),
            ("lscpu -e", format!("{heading}\n{wide}\n")),
            ("lscpu -p", format!("{names}\n{}\n", parsed.join("\n"))),
        ]
    }
    /// Returns the fields of `lscpu`.
    fn fields(self) -> Vec<(String, String)> {
        let caches = self.nodes * self.caches;
        let fields = [
            ("Architecture", "x86_64".to_owned()),
            ("CPU(s)", (self.cpus() + self.offline).to_string()),
            ("On-line CPU(s) list", format!("0-{}", self.cpus() - 1)),
            ("Model name", "Intel(R) Xeon(R) Gold".to_owned()),
            ("Thread(s) per core", self.smt.to_string()),
            ("Socket(s)", self.nodes.to_string()),
            ("NUMA node(s)", self.nodes.to_string()),
            ("L3 cache", format!("{} MiB ({caches} instances)", 32 * caches)),
        ];
        let nodes =
            (0..self.nodes).map(|node| (format!("NUMA node{node} CPU(s)"), self.list(node)));
        fields.map(|(name, value)| (name.to_owned(), value)).into_iter().chain(nodes).collect()
    }
    /// Returns every form, with its name.
    fn forms(self) -> Vec<(&'static str, String)> {
        let fields = self.fields();
        let all = |shown: fn(&(String, String)) -> String| fields.iter().map(shown);
        let json =
            all(|(name, value)| format!("{{\"field\": \"{name}:\", \"data\": \"{value}\"}}"));
        let json = format!("{{\"lscpu\": [{}]}}", json.collect::<Vec<_>>().join(","));
        let numa = (0..self.nodes).map(|node| {
            let list = self.list(node).replace(',', " ");
            format!(
                "node {node} cpus: {list}\nnode {node} size: 64000 MB\nnode {node} free: 12 MB\n"
            )
        });
        let numa = format!("available: {} nodes\n{}", self.nodes, numa.collect::<String>());
        let mut forms = self.rows().to_vec();
        forms.extend([
            ("lscpu -J", json),
            ("lscpu", all(|(name, value)| format!("{name}:   {value}\n")).collect()),
            ("a mail", all(|(name, value)| format!("> {name}: {value}\n")).collect()),
            ("numactl -H", numa),
        ]);
        forms
    }
}

#[test]
fn every_form_of_a_known_machine_gives_its_groups() {
    let mut seed = 1_u64;
    let mut below = |n: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((seed >> 33) % n) as usize
    };
    for case in 0..600 {
        let machine = Known {
            nodes: 1 + below(8),
            caches: 1 + below(4),
            cores: 1 + below(12),
            smt: [1, 2, 4, 8][below(4)],
            offline: below(3) * below(20),
        };
        let (cpus, cluster) = (machine.cpus(), machine.cores * machine.smt);
        for (form, text) in machine.forms() {
            let read =
                read(&text, None).unwrap_or_else(|why| panic!("{case} {form}: {why}\n{text}"));
            let [all, nodes, cache, smt] = groups(read.groups);
            assert_eq!((all, nodes), (Some(cpus), Some(machine.nodes)), "{form} of {machine:?}");
            if form == "numactl -H" {
                assert_eq!((cache, smt, read.node_mib), (None, None, Some(64_000)));
            } else {
                assert_eq!((cache, smt), (Some(cluster), Some(machine.smt)), "{form}: {machine:?}");
            }
            assert!(read.kinds.is_empty(), "{form} of {machine:?}");
            let Some(places) = read.places else { continue };
            // CPUs of a core are next to each other, cores of a cache, and caches of a node.
            for cpu in 0..cpus {
                for (size, group) in [(machine.smt, 0), (cluster, 1), (cpus / machine.nodes, 2)] {
                    let first = (0..cpus).find(|&other| places[other] == places[cpu] / size * size);
                    let first = first.expect("places are those of all CPUs");
                    assert_eq!(machine.place(first)[group], machine.place(cpu)[group], "{form}");
                }
            }
        }
    }
}

#[test]
fn bare_dashes_and_machines_without_cores_are_read() {
    let text = r#"{"cpus":[{"cpu":0,"node":0,"socket":0,"core":-,"l1d:l1i:l2:l3":"0:0:0:0",
        "online":true}]}"#;
    let one = read(text, None).unwrap();
    assert_eq!(groups(one.groups), [Some(1), Some(1), Some(1), Some(1)]);
    assert!(one.notes[0].contains("each CPU is assumed to be a core"), "{:?}", one.notes);
    // An LPAR of s390: 6 of 8 CPUs are online.
    let row = |cpu: usize| match cpu {
        0..6 => format!(
            "{{\"cpu\": {cpu}, \"book\": 0, \"socket\": 0, \"core\": {cpu}, \"l1d:l1i:l2d:l2i\": \
             \"{cpu}:{cpu}:{cpu}:{cpu}\", \"online\": \"yes\", \"configured\": \"yes\", \
             \"polarization\": \"horizontal\", \"address\": -}}"
        ),
        _ => format!(
            "{{\"cpu\": {cpu}, \"book\": -, \"socket\": -, \"core\": -, \"l1d:l1i:l2d:l2i\": -, \
             \"online\": \"no\", \"configured\": \"yes\", \"polarization\": -, \"address\": -}}"
        ),
    };
    let rows: Vec<String> = (0..8).map(row).collect();
    let six = read(&format!("{{\"cpus\": [{}]}}", rows.join(",\n")), None).unwrap();
    assert_eq!(groups(six.groups), [Some(6), Some(1), Some(6), Some(1)]);
    let dash = "CPU(s): 32\nModel name: -\nThread(s) per core: 1\nL3 cache: -\n";
    let dash = read(dash, None).unwrap();
    assert_eq!((dash.model, dash.groups.cluster), (None, Some(32)));
}

/// Rows of a phone whose numbers of cores restart in each cluster.
fn phone(clocks: bool) -> String {
    let row = |cpu: usize| {
        let (core, mhz) = [
            (0, 2016),
            (1, 2016),
            (2, 2016),
            (0, 2803),
            (1, 2803),
            (0, 2803),
            (1, 2803),
            (0, 3187),
        ][cpu];
        let mhz = if clocks { format!(", \"maxmhz\": {mhz}.0") } else { String::new() };
        format!(
            "{{\"cpu\": {cpu}, \"node\": 0, \"socket\": 0, \"core\": {core}, \"l1d:l1i:l2:l3\": \
             \"{cpu}:{cpu}:{cpu}:0\", \"online\": true{mhz}}}"
        )
    };
    format!("{{\"cpus\": [{}]}}", (0..8).map(row).collect::<Vec<_>>().join(","))
}

#[test]
fn cores_of_several_kinds_have_their_speeds() {
    let read_phone = read(&phone(true), None).unwrap();
    assert_eq!(groups(read_phone.groups), [Some(8), Some(1), Some(8), Some(1)]);
    let of = |read: &Lscpu| read.kinds.iter().map(|of| (of.cpus, of.percent)).collect::<Vec<_>>();
    assert_eq!(of(&read_phone), [(3, 63.3), (4, 88.0), (1, 100.0)]);
    let capacity = |cpu: u64| match cpu {
        0..3 => 250.0,
        3..7 => 800.0,
        _ => 1024.0,
    };
    let capacities: BTreeMap<u64, f64> = (0..8).map(|cpu| (cpu, capacity(cpu))).collect();
    let file = Text { name: "x".to_owned(), text: phone(false) };
    let given = Given { capacities: Some(&capacities), ..Given::default() };
    let by_capacity = Lscpu::read(&file, given).unwrap();
    assert_eq!(of(&by_capacity), [(3, 24.4), (4, 78.1), (1, 100.0)]);
    let why = read(&phone(false), None).unwrap_err();
    assert!(why.contains("its clusters have 3, 2, 2, 1 cores"), "{why}");
    assert!(why.contains("--base phone"), "{why}");
    let text = "CPU(s): 6\nOn-line CPU(s) list: 0-5\nVendor ID: ARM\n  Model name: Cortex-A55\n    \
                Thread(s) per core: 1\n    Core(s) per cluster: 4\n    Socket(s): -\n    \
                Cluster(s): 1\n    CPU max MHz: 1416.0000\n  Model name: Cortex-A72\n    Thread(s) \
                per core: 1\n    Core(s) per cluster: 2\n    Socket(s): -\n    Cluster(s): 1\n    \
                CPU max MHz: 1800,0000\n";
    let big_little = read(text, None).unwrap();
    assert_eq!(of(&big_little), [(4, 78.7), (2, 100.0)]);
    let why =
        read(&text.replace("CPU(s): 6", "CPU(s): 8").replace("0-5", "0-7"), None).unwrap_err();
    assert!(why.contains("have 6 CPUs together, and it has 8"), "{why}");
    // A server of ARM whose numbers of cores restart in each cluster has one kind.
    let row = |cpu: usize| {
        format!(
            "{{\"cpu\": {cpu}, \"node\": 0, \"socket\": 0, \"core\": {}, \"l1d:l1i:l2:l3\": \
             \"{cpu}:{cpu}:{}:0\", \"online\": true}}",
            cpu % 4,
            cpu / 4
        )
    };
    let rows: Vec<String> = (0..8).map(row).collect();
    let server = read(&format!("{{\"cpus\": [{}]}}", rows.join(",")), None).unwrap();
    assert_eq!(
        (groups(server.groups), server.kinds.len()),
        ([Some(8), Some(1), Some(8), Some(1)], 0)
    );
}

#[test]
fn texts_that_are_damaged_are_refused_with_the_place() {
    let why = read("CPU NODE SOCKET CORE\n 0 0 0\n", None).unwrap_err();
    assert!(why.contains("line 2: a CPU has 3 columns, and the heading 4"), "{why}");
    let uneven = "node 0 cpus: 0 1\nnode 1 cpus: 2\nnode 2 cpus:\n";
    assert!(read(uneven, None).unwrap_err().contains("its nodes have 1 to 2 CPUs"));
    let even = read(&uneven.replace("0 1", "1"), None).unwrap();
    assert_eq!((groups(even.groups), even.notes.len()), ([Some(2), Some(2), None, None], 1));
    let holes = "CPU(s): 48\nThread(s) per core: 1\nL3 cache: 30 MiB (3 instances)\n\
                 NUMA node0 CPU(s): 0-15\nNUMA node2 CPU(s): 16-31\nNUMA node3 CPU(s): 32-47\n";
    assert_eq!(groups(read(holes, None).unwrap().groups)[1], Some(3));
    let holes = holes.replace("32-47", "32-63").replace("48", "64");
    assert!(read(&holes, None).unwrap_err().contains("its nodes have 16 to 32 CPUs"));
    let cut = holes.replace("32-63", "32-47</p>");
    let why = read(&cut, None).unwrap_err();
    assert!(why.contains("`NUMA node3 CPU(s)`: `32-47</p>` is no list of CPUs"), "{why}");
    let other = "CPU(s): 4\nThread(s) per core: 1\nNUMA node0 CPU(s): 0-1\nNUMA node1 CPU(s): 2-3\n\
                 NUMA node2 CPU(s): -\n";
    assert_eq!(groups(read(other, None).unwrap().groups)[1], Some(2));
    let both = format!("{other}node 0 cpus: 0 1 2 3\nnode 1 cpus: 4 5 6 7\n");
    let why = read(&both, None).unwrap_err();
    assert!(why.contains("lscpu have 4 CPUs, and those of numactl 8"), "{why}");
    assert!(read("CPU(s): 0\n", None).unwrap_err().contains("no node has CPUs"));
    let old = "CPU(s): 40\nVendor ID: GenuineIntel\nThread(s) per core: 2\nSocket(s): 2\n\
               NUMA node(s): 2\nL3 cache: 25600K\n";
    let old = read(old, None).unwrap();
    assert_eq!((old.groups.cluster, old.cache_kib), (Some(20), Some(25_600)));
    let sum = "CPU(s): 40\nVendor ID: GenuineIntel\nThread(s) per core: 2\nSocket(s): 2\n\
               NUMA node(s): 2\nL3 cache: 50 MiB\n";
    let sum = read(sum, None).unwrap();
    assert_eq!((sum.groups.cluster, sum.cache_kib), (Some(20), Some(25_600)));
}
