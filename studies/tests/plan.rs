//! Tests of planning: requests that are refused before anything starts, and plans of valid
//! requests.

use crate::fake::{registry, request, single};
use mmscale_document::{self as record, ParamValue, Target};
use mmscale_harness::{
    ArmId, CallError, Checks, Length, Plan, PolicyArm, Request, Settings, Shape, linux_version,
    plan,
};
use mmscale_live::ab::{self, Question};

fn refusal(change: impl FnOnce(&mut Request)) -> String {
    let mut request = request();
    change(&mut request);
    plan(&registry(), &request).unwrap_err().to_string()
}

fn set(items: &[&str]) -> Settings {
    Settings::parse(items).unwrap()
}

#[test]
fn nothing_but_a_name_is_needed() {
    let plan = single(&request());
    assert_eq!((plan.on, plan.cpus, plan.hz), (Target::Sim, 72, 1000));
    assert_eq!(plan.profile_name, "arm64-72");
    assert_eq!(*plan.seeds, [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(plan.arms, [ArmId(0), ArmId(1)]);
    assert_eq!(plan.runs(), 14);
    assert_eq!(plan.params.count("factor"), 7);
}

#[test]
fn quick_runs_are_shorter() {
    let plan = single(&Request { length: Length::Quick, ..request() });
    assert_eq!(*plan.seeds, [1, 2]);
    assert_eq!(plan.params.count("factor"), 3);
    assert_eq!(plan.defaults()["factor"], ParamValue::Count(7));
}

#[test]
fn an_arm_whose_page_allocator_cannot_have_the_pages_of_the_machine_is_refused() {
    let on = |profile: &str, policy: &str| {
        let policies = vec![PolicyArm::parse(policy).unwrap()];
        let (studies, profile) = (vec!["churn".to_owned()], Some(profile.into()));
        plan(mmscale_studies::all(), &Request { studies, policies, profile, ..request() })
    };
    for policy in ["caches=blockmap", "caches=posted"] {
        let why = on("arm64-480g-64k-72", policy).unwrap_err().to_string();
        for part in ["of study `churn` cannot run on profile `arm64-480g-64k-72`", "4 KiB"] {
            assert!(why.contains(part), "{why}");
        }
        assert!(on("arm64-480g-72", policy).is_ok());
    }
    for policy in ["lru=lazy", "caches=premerge", "lists=spb"] {
        assert!(on("arm64-480g-64k-72", policy).is_ok(), "{policy}");
    }
}

/// A quick run of a large machine has one seed and its own default windows; explicit settings are
/// kept.
#[test]
fn quick_runs_of_large_machines_are_shorter_still() {
    let ipi = |settings: &[&str]| {
        let studies = vec!["ipi".to_owned()];
        let request = Request { studies, settings: set(settings), ..request() };
        let request = Request { length: Length::Quick, shape: Shape::Fill, ..request };
        plan(mmscale_studies::all(), &request).unwrap().remove(0)
    };
    let (usual, large) = (ipi(&["cpus=512"]), ipi(&["cpus=1024"]));
    assert_eq!((usual.params.count("windows"), &*usual.seeds), (100, &[1, 2][..]));
    assert_eq!((large.params.count("windows"), &*large.seeds), (20, &[1][..]));
    assert_eq!(ipi(&["cpus=1024", "windows=50"]).params.count("windows"), 50);
}

/// A quick run on up to 512 CPUs has the results of the first two seeds of a full run.
#[test]
fn a_quick_run_has_the_windows_of_a_full_one() {
    let plans = |length| {
        let request = Request { studies: vec!["all".to_owned()], length, ..request() };
        plan(mmscale_studies::all(), &request).unwrap()
    };
    for (quick, full) in plans(Length::Quick).into_iter().zip(plans(Length::Full)) {
        assert_eq!(quick.seeds[..], full.seeds[..2]);
        let values = full.params.values();
        let differs = |(name, value): &(&String, &ParamValue)| values[*name] != **value;
        let others: Vec<_> = quick.params.values().iter().filter(differs).collect();
        // Without the second run of each seed, with its metric.
        let decay = ("decay_s".to_owned(), ParamValue::Real(0.0));
        let expected: &[_] =
            if quick.study.name() == "vmstat" { &[(&decay.0, &decay.1)] } else { &[] };
        assert_eq!(others, expected, "{}", quick.study.name());
    }
}

#[test]
fn the_profile_takes_the_plans_cpus_and_hz() {
    let plan = single(&Request { settings: set(&["cpus=8", "hz=250"]), ..request() });
    let profile = plan.profile.unwrap();
    assert_eq!((profile.topology.cpus, profile.hz), (8, 250));
    assert_eq!((plan.cpus, plan.hz), (8, 250));
    assert!(!plan.params.values().contains_key("cpus"), "cpus is no parameter of the study");
    let named = single(&Request { profile: Some("x86-32".into()), ..request() });
    assert_eq!(named.cpus, 32);
}

/// If 95 CPUs of `x86-512` were one node without SMT, while 96 CPUs are two nodes with SMT, a curve
/// would compare two different machines.
#[test]
fn cpus_that_cannot_have_the_profiles_groups_are_refused_unless_a_shape_is_named() {
    let of = |cpus: u64, shape| Request {
        profile: Some("x86-512".into()),
        settings: set(&[&format!("cpus={cpus}")]),
        shape,
        ..request()
    };
    let why = plan(&registry(), &of(95, Shape::Keep)).unwrap_err().to_string();
    assert!(why.contains("use 64 or 96 CPUs") && why.contains("--shape fill"), "{why}");
    let groups = |cpus, shape| {
        let topology = single(&of(cpus, shape)).topology.unwrap();
        let record::Topology { nodes, node_cpus, cache_cpus, core_threads, profile, .. } = topology;
        ([nodes, node_cpus, cache_cpus, core_threads], profile.is_some())
    };
    assert_eq!(groups(96, Shape::Keep), ([2, 48, 16, 2], false));
    assert_eq!(groups(8, Shape::Keep), ([2, 4, 4, 2], true), "caches are smaller");
    assert_eq!(groups(1, Shape::Keep), ([1, 1, 1, 1], true));
    assert_eq!(groups(95, Shape::Fill), ([1, 256, 16, 2], true), "one node of two");
    assert_eq!(groups(300, Shape::Fill), ([2, 256, 16, 2], false));
    assert_eq!(groups(95, Shape::Flat), ([1, 95, 95, 1], true));
    // A cache that spans a whole node is equal regardless of the node's size.
    assert!(
        single(&Request { settings: set(&["cpus=7"]), ..request() })
            .topology
            .is_some_and(|topology| topology.profile.is_none() && topology.cache_cpus == 7)
    );
    let why = refusal(|r| (r.on, r.shape) = (Some(Target::Threads), Shape::Flat));
    assert!(why.contains("--shape flat") && why.contains("leave one of them out"), "{why}");
}

/// A document contains the policies of each arm, including those that a parameter sets for all
/// arms.
#[test]
fn the_policies_of_each_study_are_known() {
    let of = |study: &str, settings: &[&str]| {
        let (studies, settings) = (vec![study.to_owned()], set(settings));
        let request = Request { studies, settings, ..request() };
        plan(mmscale_studies::all(), &request).unwrap().remove(0)
    };
    let policy = |plan: &Plan, arm: usize, key: &str| {
        plan.study.policies(ArmId(arm), &plan.params, plan.on).remove(key).unwrap_or_default()
    };
    let ipi = of("ipi", &["window_s=0.5", "windows=4"]);
    let all = ["calls", "tick", "lru", "exit", "caches"].map(|key| policy(&ipi, 3, key));
    assert_eq!(all, ["requests", "phased", "lazy", "claims", "blockmap"]);
    let pcp = of("pcp", &["workload=build", "build_ms=3", "lru=stock"]);
    assert_eq!(
        (policy(&pcp, 2, "caches"), policy(&pcp, 2, "lru")),
        ("blockmap".into(), "stock".into())
    );
    assert_eq!(policy(&of("pcp", &[]), 0, "lru"), "lazy");
    assert_eq!(policy(&of("churn", &[]), 1, "bind"), "move");
}

#[test]
fn this_computer_has_its_own_cpus_and_no_profile() {
    let plan = single(&Request { on: Some(Target::Threads), ..request() });
    assert_eq!(plan.cpus, std::thread::available_parallelism().unwrap().get());
    assert_eq!(plan.profile_name, "host");
    let message = refusal(|r| {
        r.on = Some(Target::Threads);
        r.profile = Some("x86-32".into());
    });
    assert!(message.contains("leave one of them out"), "{message}");
}

#[test]
fn a_sweep_is_one_plan_for_each_value_and_study() {
    let settings = set(&["cpus=8,16,72"]);
    let studies = vec!["all".into()];
    let plans = plan(&registry(), &Request { studies, settings, ..request() }).unwrap();
    let what: Vec<_> = plans.iter().map(|plan| (plan.study.name(), plan.cpus)).collect();
    let fake = [("fake", 8), ("fake", 16), ("fake", 72)];
    assert_eq!(what[..3], fake);
    assert_eq!(what[3..], [("other", 8), ("other", 16), ("other", 72)]);
}

#[test]
fn arms_come_in_the_order_asked_for() {
    let plan = single(&Request { arms: vec!["better".into(), "stock".into()], ..request() });
    assert_eq!(plan.arms, [ArmId(1), ArmId(0)]);
}

fn with_policies(
    study: &str,
    arms: &[&str],
    texts: &[&str],
    on: Target,
) -> Result<Plan, CallError> {
    let (studies, arms) =
        (vec![study.to_owned()], arms.iter().map(|&arm| arm.to_owned()).collect());
    let policies = texts.iter().map(|text| PolicyArm::parse(text)).collect::<Result<_, _>>()?;
    let request = Request { studies, arms, policies, on: Some(on), ..request() };
    Ok(plan(mmscale_studies::all(), &request)?.remove(0))
}

/// Returns, for each arm, its name and the policies that differ from Linux.
fn arms_of(plan: &Plan) -> Vec<String> {
    let policies = |arm: &ArmId| {
        let mut all = plan.study.policies(*arm, &plan.params, plan.on);
        all.retain(|_, policy| !["stock", "stay"].contains(&policy.as_str()));
        let all: Vec<_> = all.iter().map(|(key, policy)| format!("{key}={policy}")).collect();
        format!("{}: {}", plan.study.arms()[arm.0].name, all.join(" "))
    };
    plan.arms.iter().map(policies).collect()
}

#[test]
fn a_call_makes_arms_of_policies() {
    let of = |arms: &[&str], texts: &[&str]| {
        arms_of(&with_policies("churn", arms, texts, Target::Sim).unwrap())
    };
    let texts = ["tick=phased", "both:caches=blockmap,bind=move"];
    let made = ["tick=phased: tick=phased", "both: bind=move caches=blockmap"];
    assert_eq!(of(&[], &texts), ["stock: ", made[0], made[1]]);
    assert_eq!(of(&["lazy", "numa"], &texts[..1]), ["lazy: lru=lazy", "numa: bind=move", made[0]]);
    // The registered study is unchanged.
    assert_eq!(of(&["lazy"], &[]), ["lazy: lru=lazy"]);
}

fn on_version(
    study: &str,
    version: &str,
    change: impl FnOnce(&mut Request),
) -> Result<Plan, CallError> {
    let linux = Some(linux_version(version)?);
    let mut request = Request { studies: vec![study.to_owned()], linux, ..request() };
    change(&mut request);
    Ok(plan(mmscale_studies::all(), &request)?.remove(0))
}

/// `bulk=whole` in all of these, so that the other policies are visible.
#[test]
fn a_version_gives_its_policies_to_all_arms_and_leaves_out_those_of_other_versions() {
    let of = |version: &str| arms_of(&on_version("reap", version, |_| ()).unwrap());
    let old = "broadcast=none bulk=whole charge-stock=one";
    let expected = ["stock", "claims"].map(|exit| match exit {
        "stock" => format!("stock: {old} unmap=drain vma-locks=faults"),
        _ => format!("{exit}: {old} exit={exit} unmap=drain vma-locks=faults"),
    });
    assert_eq!(of("6.12"), expected);
    let expected = ["posted", "claims"].map(|exit| format!("{exit}: bulk=whole exit={exit}"));
    assert_eq!(of("6.18"), expected);
    let mine = on_version("reap", "6.18", |request| {
        request.policies = vec![PolicyArm::parse("lru=lazy").unwrap()];
    });
    let lazy = "lru=lazy: bulk=whole exit=posted lru=lazy".to_owned();
    assert_eq!(arms_of(&mine.unwrap()), [expected[0].clone(), lazy], "the base is the kernel");
    let remarks = on_version("reap", "6.12", |_| ()).unwrap().remarks().join(" ");
    assert!(remarks.contains("Policies as in Linux 6.12 (bulk=whole, "), "{remarks}");
}

#[test]
fn what_contradicts_a_version_is_refused() {
    let refused = |study: &str, version: &str, change: fn(&mut Request)| {
        on_version(study, version, change).unwrap_err().to_string()
    };
    let why = refused("reap", "6.18", |request| request.arms = vec!["stock".to_owned()]);
    assert!(why.contains("has exit=stock, and the version of --linux has exit=posted"), "{why}");
    let why = refused("reap", "6.12", |request| request.arms = vec!["posted".to_owned()]);
    assert!(why.contains("has exit=posted, and the version of --linux has exit=stock"), "{why}");
    let why = refused("pcp", "6.12", |request| request.settings = set(&["lru=lazy"]));
    assert!(why.starts_with("--set lru=lazy contradicts --linux 6.12, which has lru=stock;"));
    let why = refused("churn", "6.12", |request| request.on = Some(Target::Live));
    assert!(why.starts_with("--linux 6.12 chooses the mechanisms of a simulated kernel"), "{why}");
    let why = refused("churn", "4.9", |_| ());
    assert!(why.ends_with("older than the known changes: use 5.0 to 7.3"), "{why}");
    // A default of the study gives way to the version.
    let pcp = on_version("pcp", "6.12", |_| ()).unwrap();
    assert_eq!(pcp.params.choice("lru"), "stock");
}

#[test]
fn arms_of_policies_that_cannot_be_made_are_refused() {
    let refused = |study: &str, text: &str, on| {
        with_policies(study, &[], &[text], on).unwrap_err().to_string()
    };
    let why = refused("vmstat", "bind=move", Target::Sim);
    assert!(
        why.contains(
            "no mechanism named `bind` (known: tick, lru, release, folios, caches, high, "
        )
    );
    let why = refused("churn", "bidn=move", Target::Sim);
    assert!(why.contains("no mechanism named `bidn`; did you mean `bind`?"), "{why}");
    // The live kernel has its own policies, but a workload's choices apply there, too.
    let why = refused("churn", "mine:lru=lazy", Target::Live);
    assert!(
        why.starts_with("--policy mine:lru=lazy cannot be applied to the running kernel"),
        "{why}"
    );
    let plan = with_policies("churn", &[], &["mine:bind=move"], Target::Live).unwrap();
    assert_eq!(arms_of(&plan), ["stock: ", "mine: bind=move"]);
    let why = refusal(|r| r.policies = vec![PolicyArm::parse("tick=phased").unwrap()]);
    assert_eq!(why, "study `fake` has no policies to choose from; leave --policy and --linux out");
}

#[test]
fn what_can_never_give_a_result_is_refused_before_anything_runs() {
    let shipped = |study: &str, items: &[&str]| {
        let (studies, settings) = (vec![study.to_owned()], set(items));
        plan(mmscale_studies::all(), &Request { studies, settings, ..request() })
    };
    let why = shipped("reap", &["cpus=8,1"]).unwrap_err().to_string();
    let expected = "study `reap` cannot run with these parameters: 2 walkers need as many CPUs, \
                    but the machine has 1";
    assert!(why.starts_with(expected), "{why}");
    assert!(shipped("reap", &["cpus=8,1", "walkers=1"]).is_ok());
    let why = shipped("pcp", &["memory_gib=1", "cpus=4096"]).unwrap_err().to_string();
    assert!(why.contains("increase --set memory_gib"), "{why}");
    let (studies, on) = (vec!["pcp".to_owned()], Some(Target::Live));
    let live = Request { studies, on, settings: set(&["through=frames"]), ..request() };
    let why = plan(mmscale_studies::all(), &live).unwrap_err().to_string();
    assert!(why.contains("use through=system"), "{why}");
}

#[test]
fn a_call_has_no_more_documents_than_there_may_be() {
    let list = |end: u64| (1..=end).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    let cpus = format!("cpus={}", list(101));
    let message = refusal(|r| r.settings = set(&[&cpus, &format!("factor={}", list(100))]));
    assert!(message.contains("make 10100 combinations"), "{message}");
    // Half as many values for each of two studies.
    let message = refusal(|r| {
        r.studies = vec!["all".into()];
        r.settings = set(&[&cpus, &format!("factor={}", list(60))]);
    });
    assert!(message.contains("make 12120 combinations"), "{message}");
}

#[test]
fn what_makes_no_sense_is_refused_with_a_way_out() {
    let cases = [
        (refusal(|r| r.studies = vec!["fak".into()]), "did you mean `fake`?"),
        (refusal(|r| r.studies = vec!["fake".into(), "all".into()]), "named twice"),
        (refusal(|r| r.studies = vec![]), "no study is named"),
        (refusal(|r| r.arms = vec!["beter".into()]), "did you mean `better`?"),
        (refusal(|r| r.arms = vec!["stock".into(), "stock".into()]), "named twice"),
        (refusal(|r| r.profile = Some("arm64-71".into())), "did you mean `arm64-72`?"),
        (refusal(|r| r.settings = set(&["cpus=0"])), "0 is outside its range, 1 to 4096"),
        (refusal(|r| r.settings = set(&["cpus=5000"])), "5000 is outside its range, 1 to 4096"),
        (refusal(|r| r.settings = set(&["hz=0"])), "one of 100, 250, 300, 1000"),
        (refusal(|r| r.settings = set(&["factr=2"])), "did you mean `factor`?"),
        (refusal(|r| r.settings = set(&["factor=-2"])), "must not be negative"),
        (refusal(|r| r.seeds = Some(0)), "allowed: --seeds 1 to 10000"),
        (refusal(|r| r.first_seed = u64::MAX), "cannot run 7 seeds"),
        (
            refusal(|r| r.on = Some(Target::Live)),
            "does not run on the live kernel; use --on sim or --on threads",
        ),
    ];
    for (message, expected) in cases {
        assert!(message.contains(expected), "`{message}` does not say `{expected}`");
    }
}

#[test]
fn a_setting_that_there_is_not_is_told_of_before_anything_is_looked_up() {
    let request = Request { on: None, studies: vec!["vmstat".to_owned()], ..request() };
    let ask = |question: &str| {
        let question = Question::parse(question).unwrap();
        ab::prepare(mmscale_studies::all(), &request, &question).map(|_| ())
    };
    let why = ask("vm.no_such_setting=1,2").unwrap_err().to_string();
    assert!(why.contains("`vm.no_such_setting` below /proc/sys"), "{why}");
    assert!(why.contains("sysctl -a"), "{why}");
    // A key without a dot is a parameter, and the error lists those of the study.
    let why = ask("no_such_parameter=1,2").unwrap_err().to_string();
    assert!(why.contains("there is no parameter named"), "{why}");
}

#[test]
fn what_the_live_kernel_has_by_itself_cannot_be_set_there_and_is_not_shown() {
    let shipped = |study: &str, on, items: &[&str]| {
        let (studies, settings) = (vec![study.to_owned()], set(items));
        plan(mmscale_studies::all(), &Request { studies, settings, on: Some(on), ..request() })
    };
    for (study, key, value) in [
        ("vmstat", "requeue", "always"),
        ("churn", "swap", "zeromap"),
        ("pcp", "lru", "stock"),
        ("reap", "swap", "block"),
        ("ipi", "noise", "off"),
    ] {
        let items = [format!("{key}={value}")];
        let why = shipped(study, Target::Live, &[&items[0]]).unwrap_err().to_string();
        assert_eq!(
            why,
            format!("parameter `{key}` of `{study}` does not apply to --on live; leave it out")
        );
        for (on, there) in [(Target::Live, false), (Target::Threads, true), (Target::Sim, true)] {
            for plan in shipped(study, on, &[]).unwrap() {
                assert_eq!(plan.shown_params().contains_key(key), there, "{key} on {on}");
                assert!(plan.params.values().contains_key(key), "runs read {key}");
            }
        }
    }
}

#[test]
fn nothing_checks_the_live_kernel() {
    let (studies, on) = (vec!["vmstat".to_owned()], Some(Target::Live));
    let request = Request { studies, on, checks: Checks::On, ..request() };
    let why = plan(mmscale_studies::all(), &request).unwrap_err().to_string();
    assert!(why.contains("leave one of them out"), "{why}");
}

#[test]
fn more_cpus_than_there_are_take_turns_and_the_report_says_so() {
    let of = |on, cpus: u64| {
        let settings = set(&[&format!("cpus={cpus}")]);
        single(&Request { settings, on: Some(on), ..request() }).remarks().join(" ")
    };
    assert!(of(Target::Threads, 4096).contains("4096 CPUs were requested"));
    assert!(!of(Target::Threads, 1).contains("were requested"));
    assert!(!of(Target::Sim, 4096).contains("were requested"));
}

/// A reader must know what of a run its window leaves out.
#[test]
fn every_study_says_what_comes_before_its_window() {
    for study in mmscale_studies::all().all() {
        let start = study.start().unwrap_or_else(|| panic!("{}: no `start`", study.name()));
        assert!(start.contains(' ') && !start.ends_with('.'), "{}: {start}", study.name());
    }
}
