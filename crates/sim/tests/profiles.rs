//! Profiles: the built-in ones are valid, and invalid ones are refused with a helpful message.

use mmscale_arch::Op;
use mmscale_sim::profile::{
    self, CostGroup, Lengths, Noise, Number, Profile, ProfileError, ProfileFile, Shape, Topology,
    builtin_names, resolve,
};

/// A valid file, to be broken in one place.
fn text() -> String {
    let number = |value: f64| Number { value, range: [value, value], source: "a test".into() };
    let section = |keys: &[(&str, f64)]| -> profile::Section {
        keys.iter().map(|&(key, value)| (key.to_owned(), number(value))).collect()
    };
    let costs = [
        "line_own_ns",
        "line_smt_ns",
        "line_cluster_ns",
        "line_node_ns",
        "line_remote_ns",
        "line_memory_ns",
        "atomic_ns",
        "lock_ns",
        "unlock_ns",
        "handoff_fixed_ns",
        "handoff_lines",
        "entry_extra_ns",
        "ipi_send_ns",
        "ipi_delivery_ns",
        "irq_ns",
        "tlb_broadcast_ns",
        "switch_ns",
        "wake_ns",
        "idle_exit_ns",
        "frame_hidden_percent",
        "jitter_percent",
    ];
    profile::write(&ProfileFile {
        base: None,
        description: "a \"test\" with 8 CPUs".into(),
        topology: section(&[("cpus", 8.0), ("smt", 2.0), ("cluster", 4.0), ("nodes", 1.0)]),
        memory: section(&[
            ("node_pages", 262144.0),
            ("page_bytes", 4096.0),
            ("node_bytes_per_us", 10_000.0),
            ("write_traffic", 2.0),
            ("cluster_cache_kib", 16_384.0),
            ("tlb_broadcast_spaces", 0.0),
        ]),
        timer: section(&[("hz", 250.0)]),
        costs: section(&costs.map(|key| (key, 12.5))),
        swap: section(&[
            ("read_ns", 80_000.0),
            ("write_ns", 20_000.0),
            ("bytes_per_us", 3_000.0),
            ("depth", 1024.0),
        ]),
        clock: profile::Section::new(),
        noise: section(&[
            ("stolen_gap_ms", 1000.0),
            ("stolen_least_ns", 5000.0),
            ("stolen_most_ns", 90_000.0),
            ("stolen_doubles_percent", 50.0),
            ("handler_gap_ms", 10.0),
            ("handler_least_ns", 500.0),
            ("handler_most_ns", 600.0),
            ("handler_doubles_percent", 0.0),
        ]),
        ops: Op::ALL.iter().map(|&op| (profile::op_key(op), number(3.0))).collect(),
        instructions: profile::Section::new(),
    })
}

fn load(text: &str) -> Result<Profile, ProfileError> {
    profile::resolve("mine", &profile::parse("mine", text)?)
}

/// Returns the message for a file in which `from` became `to`.
fn broken(from: &str, to: &str) -> String {
    let text = text();
    assert!(text.contains(from), "{from} not in {text}");
    load(&text.replacen(from, to, 1)).unwrap_err().to_string()
}

#[test]
fn every_builtin_profile_resolves() {
    for name in builtin_names() {
        let profile = profile::load(name).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(profile.name, name);
        // A name has the number of CPUs, unless it is that of a processor.
        let cpus = name.trim_end_matches("-live").rsplit_once('-').map(|(_, cpus)| cpus);
        assert!(cpus.is_none_or(|cpus| cpus == profile.topology.cpus.to_string()), "{name}");
        let line = profile.costs.line;
        assert!(line.own_ps < line.cluster_ps && line.cluster_ps <= line.node_ps, "{name}");
        assert!(line.node_ps < line.remote_ps || profile.topology.nodes == 1, "{name}");
        assert!(Op::ALL.iter().all(|&op| profile.costs.op_ps[op as usize] > 0), "{name}");
    }
}

#[test]
fn a_machine_has_no_more_small_and_middle_cores_than_cpus() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines");
    let phone = std::fs::read_to_string(format!("{folder}/phone.toml")).unwrap();
    let with = |cpus: &str| {
        let from = "small_cpus = { value = 4, range = [4, 4]";
        assert!(phone.contains(from));
        load(&phone.replace(from, &format!("small_cpus = {{ value = {cpus}, range = [0, 99]")))
    };
    assert_eq!(with("5").unwrap().clock.small.0, 5);
    let why = with("6").unwrap_err().to_string();
    assert!(why.contains("small_cpus") && why.contains("makes 9 of 8 CPUs"), "{why}");
}

#[test]
fn every_file_of_the_folder_is_built_in() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines");
    let mut files: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    files.sort();
    assert_eq!(files, builtin_names());
    let by_path = profile::load(format!("{folder}/x86-512.toml")).unwrap();
    assert_eq!(by_path.bases, ["x86-2"]);
    assert_eq!(Profile { bases: vec![], ..by_path }, profile::load("x86-512").unwrap());
}

#[test]
fn what_is_written_is_read_back() {
    let text = text();
    let file = profile::parse("mine", &text).unwrap();
    assert_eq!(profile::write(&file), text);
    assert_eq!(file.description, "a \"test\" with 8 CPUs");
    let profile = load(&text).unwrap();
    assert_eq!((profile.topology.cpus, profile.topology.smt), (8, 2));
    assert_eq!((profile.hz, profile.node_pages), (250, 262144));
    assert_eq!(profile.costs.op_ps[Op::BuddyStep as usize], 3000);
    assert_eq!((profile.costs.handoff_fixed_ps, profile.costs.jitter_1024), (12_500, 128));
}

#[test]
fn the_single_core_costs_of_the_fitted_machine_match_their_derivation() {
    let profile = profile::load("x86-26").unwrap();
    let costs = &profile.costs;
    let sum = |ops: &[Op]| -> u64 {
        // The page cache's lock, and some eight lines that are in the CPU's own cache.
        let lock = costs.lock_ps + costs.unlock_ps + 10 * costs.line.own_ps;
        ops.iter().map(|&op| costs.op_ps[op as usize]).sum::<u64>() + lock
    };
    use Op::{AllocEntry, BuddyPut, BuddyStep, BuddyTake, PagePrep, PcpPut, PcpTake};
    let alloc = sum(&[AllocEntry, PcpTake, PagePrep, BuddyTake, BuddyStep, BuddyPut, PcpPut]);
    let free = sum(&[PagePrep, PcpPut, PcpTake, BuddyPut, BuddyStep, BuddyTake]);
    // 18 ns of each are misses, which `page_prep_ns` leaves out.
    assert!(alloc.abs_diff(76_000) < 76_000 / 20, "{alloc} ps an allocation");
    assert!(free.abs_diff(72_000) < 72_000 / 20, "{free} ps a free");
}

#[test]
fn wrong_files_are_refused_with_key_and_reason() {
    let message = broken("line_node_ns", "line_nod_ns");
    assert!(message.contains("unknown key `costs.line_nod_ns`"), "{message}");
    assert!(message.contains("did you mean `line_node_ns`"), "{message}");

    let line = text().lines().find(|line| line.starts_with("handoff_fixed_ns")).unwrap().to_owned();
    let message = broken(&line, "");
    assert!(message.contains("`mine`") && message.contains("`costs.handoff_fixed_ns` is missing"));

    let message = broken("cpus = { value = 8, range = [8,", "cpus = { value = 0, range = [0,");
    assert!(message.contains("`topology.cpus` = 0 is not between 1 and 4096"), "{message}");
    let message =
        broken("cpus = { value = 8, range = [8, 8", "cpus = { value = 5000, range = [8, 9000");
    assert!(message.contains("`topology.cpus` = 5000 is not between 1 and 4096"), "{message}");

    let message = broken("smt = { value = 2, range = [2, 2", "smt = { value = 3, range = [2, 3");
    assert!(message.contains("`topology.smt` = 3 does not divide cluster = 4"), "{message}");
    let message = broken("cluster = { value = 4", "cluster = { value = 3");
    assert!(message.contains("is outside its range [4, 4]"), "{message}");
    let message =
        broken("nodes = { value = 1, range = [1, 1", "nodes = { value = 3, range = [1, 3");
    assert!(message.contains("`topology.nodes` = 3 does not divide cpus = 8"), "{message}");

    let message = broken("hz = { value = 250, range = [250", "hz = { value = 0, range = [0");
    assert!(message.contains("`timer.hz` = 0 is not between 1 and 10000"), "{message}");
    let message = broken("hz = { value = 250, range = [250", "hz = { value = 0.5, range = [0");
    assert!(message.contains("`timer.hz`"), "{message}");
    let message = broken("hz = { value = 250", "hz = { value = nan");
    assert!(message.contains("`timer.hz` = NaN is not between"), "{message}");
    let message = broken("atomic_ns = { value = 12.5", "atomic_ns = { value = -1");
    assert!(message.contains("`costs.atomic_ns` = -1 is not between"), "{message}");
    let message = broken(
        "stolen_most_ns = { value = 90000, range = [90000",
        "stolen_most_ns = { value = 400, range = [4",
    );
    assert!(message.contains("`noise.stolen_most_ns` = 400 is below stolen_least_ns"), "{message}");
    let message = broken("source = \"a test\"", "source = \" \"");
    assert!(message.contains("has no source"), "{message}");
}

#[test]
fn noise_is_there_only_where_a_profile_has_it() {
    let noise = load(&text()).unwrap().noise;
    let stolen = noise.stolen.unwrap();
    let lengths = Lengths::Tail { least_ns: 5_000, most_ns: 90_000, doubles_1024: 512 };
    assert_eq!((stolen.period_ns, stolen.lengths), (1_000_000_000, lengths));
    assert_eq!(noise.irq_off.unwrap().period_ns, 10_000_000);
    let text = text();
    let (before, after) = text.split_once("\n[noise]\n").unwrap();
    let rest = &after[after.find("\n[ops]").unwrap()..];
    let without = format!("{before}\n{}", rest.trim_start());
    assert_eq!(load(&without).unwrap().noise, Noise::default());
    assert_eq!(profile::write(&profile::parse("mine", &without).unwrap()), without);
}

#[test]
fn broken_toml_is_refused_with_its_line() {
    let message = broken("[memory]", "[memory");
    assert!(message.contains("profile `mine`, line 9"), "{message}");
    let message = broken("source = \"a test\"", "sauce = \"a test\"");
    assert!(message.contains("line 4") && message.contains("`sauce`"), "{message}");
    let message = broken("[memory]", "[memories]");
    assert!(message.contains("unknown field `memories`"), "{message}");
    assert!(load("").unwrap_err().to_string().contains("missing field `description`"));
}

#[test]
fn unknown_names_come_with_the_nearest_and_all() {
    let message = profile::load("arm64-27").unwrap_err().to_string();
    assert!(message.contains("did you mean `arm64-72`"), "{message}");
    assert!(builtin_names().iter().all(|name| message.contains(name)), "{message}");
    let message = profile::load("./no/such.toml").unwrap_err().to_string();
    assert!(message.contains("`./no/such.toml`"), "{message}");
}

#[test]
fn scaling_moves_costs_and_nothing_else() {
    let base = profile::load("x86-26").unwrap();
    let dear = base.scaled_costs(1.3);
    assert_eq!(
        dear.costs.handoff_fixed_ps,
        (base.costs.handoff_fixed_ps as f64 * 1.3).round() as u64
    );
    assert_eq!(dear.costs.line.node_ps, 62_400);
    assert_eq!(dear.costs.op_ps[Op::PagePrep as usize], 49_140);
    assert_eq!(dear.costs.node_bytes_per_us, 112_308);
    assert_eq!(dear.costs.jitter_1024, base.costs.jitter_1024);
    assert_eq!((dear.swap.read_ps, dear.swap.bytes_per_us), (110_500_000, 2_462));
    assert_eq!(dear.swap.depth, base.swap.depth);
    assert_eq!((dear.topology, dear.hz), (base.topology, base.hz));
    let lines = base.scaled_group(CostGroup::Lines, 0.7);
    assert_eq!(lines.costs.line.node_ps, 33_600);
    assert_eq!(lines.costs.op_ps, base.costs.op_ps);
    let holds = base.scaled_ops(&[Op::BuddyPut], 6.0);
    assert_eq!(holds.costs.op_ps[Op::BuddyPut as usize], 17_400);
    assert_eq!(holds.costs.op_ps[Op::BuddyTake as usize], 2_300);
}

/// Nodes, threads of a core, CPUs of a last-level cache.
fn groups(profile: &Profile) -> [usize; 3] {
    let Topology { nodes, smt, cluster, .. } = profile.topology;
    [nodes, smt, cluster]
}

#[test]
fn other_numbers_of_cpus_keep_the_groups_or_are_refused() {
    let big = profile::load("x86-512").unwrap();
    let memory = |profile: &Profile| profile.node_pages * profile.topology.nodes as u64;
    for (cpus, expected) in [
        (1, [1, 1, 1]),
        (4, [2, 2, 2]),
        (8, [2, 2, 4]),
        (32, [2, 2, 16]),
        (96, [2, 2, 16]),
        (512, [2, 2, 16]),
        (4096, [2, 2, 16]),
    ] {
        let machine = big.with_cpus(cpus, Shape::Keep).unwrap();
        assert_eq!((machine.topology.cpus, groups(&machine)), (cpus, expected));
        assert_eq!((memory(&machine), machine.hash), (memory(&big), big.hash));
    }
    let mesh = profile::load("arm64-72").unwrap().with_cpus(145, Shape::Keep).unwrap();
    assert_eq!(groups(&mesh), [1, 1, 145]);
    let refusal = |cpus| big.with_cpus(cpus, Shape::Keep).unwrap_err().to_string();
    assert!(refusal(0).contains("allowed: 1 to 4096"));
    assert!(refusal(5000).contains("5000 CPUs"));
    for (cpus, nearest) in [
        (2, "use 1 or 4 CPUs"),
        (72, "use 64 or 96 CPUs"),
        (95, "use 64 or 96 CPUs"),
        (97, "use 96 or 128 CPUs"),
        (4095, "use 4064 or 4096 CPUs"),
    ] {
        assert!(refusal(cpus).contains(nearest), "{}", refusal(cpus));
    }
    assert!(refusal(95).contains("2 nodes, 2 threads a core and last-level caches of 16 CPUs"));
}

#[test]
fn cpus_that_fill_a_machine_are_its_first_ones() {
    let big = profile::load("x86-512").unwrap();
    for (cpus, nodes) in [(1, 1), (95, 1), (256, 1), (257, 2), (512, 2), (1025, 5)] {
        let machine = big.with_cpus(cpus, Shape::Fill).unwrap();
        assert_eq!(groups(&machine), [nodes, 2, 16], "{cpus} CPUs");
        assert_eq!(machine.topology.node_cpus(), 256);
        assert_eq!(machine.node_pages, big.node_pages, "each node has its memory");
    }
    let why = profile::load("x86-2").unwrap().with_cpus(4096, Shape::Fill).unwrap_err();
    assert!(why.to_string().contains("they are 2048 nodes"), "{why}");
}

#[test]
fn a_flat_machine_has_no_groups() {
    let big = profile::load("x86-512").unwrap();
    for cpus in [1, 95, 512] {
        let flat = big.with_cpus(cpus, Shape::Flat).unwrap();
        assert_eq!((flat.topology.cpus, groups(&flat)), (cpus, [1, 1, cpus]));
        assert_eq!(flat.node_pages, 2 * big.node_pages);
    }
}

#[test]
fn the_hash_is_of_the_numbers() {
    let of = |file: &ProfileFile| resolve("any", file).unwrap().hash;
    let mut file = profile::builtin_file("x86-32").unwrap();
    let before = of(&file);
    file.description = "the same in other words".to_owned();
    assert_eq!(of(&file), before);
    file.costs.get_mut("atomic_ns").unwrap().value += 0.25;
    assert_ne!(of(&file), before);
}

#[test]
fn servers_of_480_gb_have_pages_of_two_sizes() {
    for (name, page_bytes) in [("arm64-480g-72", 4096), ("arm64-480g-64k-72", 65_536)] {
        let server = profile::load(name).unwrap();
        assert_eq!(server.page_bytes, page_bytes, "{name}");
        let gb = server.node_pages * u64::from(page_bytes) / 1_000_000_000;
        assert!((479..=480).contains(&gb), "{name}: {gb} GB");
        assert_eq!(server.costs, profile::load("arm64-72").unwrap().costs, "{name}");
    }
}

#[test]
fn instructions_have_usual_costs_which_are_no_other_machine() {
    let plain = load(&text()).unwrap();
    let costs = |profile: &Profile| {
        let costs = &profile.costs;
        (costs.instruction_ps, costs.hold_instruction_ps)
    };
    assert_eq!(costs(&plain), (350, 200));
    let with = |key: &str, value: f64| {
        let line = format!("{key} = {{ value = {value}, range = [0, 200], source = \"a test\" }}");
        load(&text().replacen("[costs]", &format!("[costs]\n{line}"), 1))
    };
    let (same, other) =
        (with("instruction_ns", 0.35).unwrap(), with("instruction_ns", 0.3).unwrap());
    assert_eq!((same.hash, costs(&same)), (plain.hash, (350, 200)));
    assert!(other.hash != plain.hash && costs(&other) == (300, 200));
    let slow = with("hold_instruction_ns", 101.0).unwrap_err().to_string();
    assert!(slow.contains("not between 0 and 100"), "{slow}");
}
