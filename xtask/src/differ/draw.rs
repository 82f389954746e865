//! The available choices, according to `mmscale list --format json`, and random selections from
//! them.

use serde_json::Value;

use super::case::{Case, Setting};
use super::output;
use super::verdict::Binaries;

/// A stream of random numbers: splitmix64 (Steele, Lea, Flood 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }
    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }
    fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
    fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len() as u64) as usize]
    }
    /// Returns a number in a range; each order of magnitude is equally likely.
    fn between(&mut self, least: f64, most: f64) -> f64 {
        let share = self.below(1 << 20) as f64 / (1 << 20) as f64;
        least * (most / least).powf(share)
    }
}

/// The parts of a study that cases need.
struct Study {
    name: String,
    arms: Vec<String>,
    params: Vec<Param>,
}

struct Param {
    name: String,
    /// Whether the parameter takes all its values in turn if it is not set. A case is one document,
    /// so it is always set.
    in_turn: bool,
    /// Whether the run time grows with the value. Such a parameter is always set, below its
    /// default.
    is_size: bool,
    values: Values,
}

enum Values {
    Names(Vec<String>),
    /// The ends of the range, and the default of a quick run.
    Count(u64, u64, u64),
    Real(f64, f64, f64),
}

/// The available choices.
pub(crate) struct Menu {
    studies: Vec<Study>,
    /// `KEY=POLICY` for every policy of every mechanism.
    policies: Vec<String>,
    profiles: Vec<String>,
}

impl Menu {
    /// Returns the choices that the program offers.
    pub(crate) fn read(binaries: &Binaries) -> Result<Self, String> {
        let listed = output(binaries.fast().args(["list", "--format", "json"]))?;
        let list: Value = serde_json::from_slice(&listed.stdout)
            .map_err(|why| format!("`mmscale list --format json` printed invalid JSON: {why}"))?;
        let all = |of: &Value| of.as_array().cloned().unwrap_or_default();
        let studies = all(&list["studies"]).iter().map(study).collect::<Option<Vec<_>>>();
        let profiles = all(&list["profiles"]).iter().map(name).collect::<Option<Vec<_>>>();
        let policies = all(&list["policies"]).iter().map(policies).collect::<Option<Vec<_>>>();
        let policies = policies.unwrap_or_default().concat();
        match (studies, profiles) {
            (Some(studies), Some(profiles))
                if !studies.is_empty() && !profiles.is_empty() && !policies.is_empty() =>
            {
                Ok(Self { studies, policies, profiles })
            }
            _ => Err("`mmscale list --format json` lacks studies, policies or profiles".to_owned()),
        }
    }
    /// Returns case `number` of `seed`.
    pub(crate) fn draw(&self, seed: u64, number: u64) -> Case {
        let mut random = Random(seed << 32 ^ number);
        let random = &mut random;
        let study = random.one_of(&self.studies);
        let most_cpus = if random.percent(10) { 64 } else { 16 };
        let mut set = Vec::new();
        for param in study.params.iter().filter(|param| param.name != "sched") {
            if param.in_turn || param.is_size || random.percent(40) {
                let (name, value) = (param.name.clone(), param.draw(random));
                set.push(Setting { name, value, needed: param.in_turn });
            }
        }
        Case {
            study: study.name.clone(),
            arm: random.one_of(&study.arms).clone(),
            policy: random.percent(30).then(|| random.one_of(&self.policies).clone()),
            profile: random.one_of(&self.profiles).clone(),
            cpus: 1 + random.below(most_cpus),
            // The topology of a profile allows only few numbers of CPUs.
            shape: if random.percent(70) { "fill" } else { "flat" },
            hz: *random.one_of(&[100, 250, 300, 1000]),
            seed: 1 + random.below(1_000_000),
            check: random.percent(40),
            set,
        }
    }
}

impl Param {
    /// Returns a value that keeps the run short: at most the quick default, a quarter of it for
    /// sizes.
    fn draw(&self, random: &mut Random) -> String {
        let at_an_end = random.percent(10);
        let part = if self.is_size { 4 } else { 1 };
        match self.values {
            Values::Names(ref names) => random.one_of(names).clone(),
            Values::Count(least, most, default) => {
                let most = most.min((default / part).max(64));
                let from = least.max(default / 200).max(1) as f64;
                let value = random.between(from, (most as f64).max(from)).round() as u64;
                if at_an_end { least } else { value.clamp(least, most) }.to_string()
            }
            Values::Real(least, most, default) => {
                let usual = if default > 0.0 { default / part as f64 } else { 1.0 };
                let most = most.min(usual);
                let from = least.max(most / 200.0).max(1e-3);
                let value = random.between(from, most.max(from)).clamp(least, most.max(least));
                if at_an_end { least } else { (value * 1e4).round() / 1e4 }.max(least).to_string()
            }
        }
    }
}

/// Returns the policies of a mechanism in the form `KEY=POLICY`.
fn policies(of: &Value) -> Option<Vec<String>> {
    let key = of["key"].as_str()?;
    let choice = |policy| Some(format!("{key}={}", name(policy)?));
    of["policies"].as_array()?.iter().map(choice).collect()
}

fn name(of: &Value) -> Option<String> {
    of["name"].as_str().map(str::to_owned)
}

fn study(of: &Value) -> Option<Study> {
    let arms = of["arms"].as_array()?.iter().map(name).collect::<Option<_>>()?;
    let params = of["params"].as_array()?.iter().map(param).collect::<Option<_>>()?;
    Some(Study { name: name(of)?, arms, params })
}

fn param(of: &Value) -> Option<Param> {
    let (ends, default) = (&of["ends"], &of["quick_default"]);
    let values = if let Some(names) = of["names"].as_array() {
        Values::Names(names.iter().map(|n| n.as_str().map(str::to_owned)).collect::<Option<_>>()?)
    } else if let (Some(least), Some(most)) = (ends[0].as_u64(), ends[1].as_u64()) {
        Values::Count(least, most, default.as_u64()?)
    } else {
        Values::Real(ends[0].as_f64()?, ends[1].as_f64()?, default.as_f64()?)
    };
    let is_size = ["s", "ms", "pages"].iter().any(|&unit| of["unit"] == *unit);
    Some(Param { name: name(of)?, in_turn: default.is_null(), is_size, values })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn menu() -> Menu {
        let param = |name: &str, in_turn, values| Param {
            name: name.into(),
            in_turn,
            is_size: !in_turn,
            values,
        };
        let params = vec![
            param("pages", false, Values::Count(1, 4096, 100)),
            param("window_ms", false, Values::Real(0.1, 1e6, 5.0)),
            param("layout", true, Values::Names(vec!["a".into(), "b".into()])),
        ];
        let study = Study { name: "s".into(), arms: vec!["stock".into()], params };
        let policies = vec!["tick=phased".into(), "lru=lazy".into()];
        Menu { studies: vec![study], policies, profiles: vec!["p".into()] }
    }

    #[test]
    fn a_case_is_the_same_whenever_it_is_drawn_and_others_are_not() {
        let menu = menu();
        assert_eq!(menu.draw(1, 5), menu.draw(1, 5));
        assert_ne!(menu.draw(1, 5), menu.draw(1, 6));
        assert_ne!(menu.draw(1, 5), menu.draw(2, 5));
    }

    #[test]
    fn each_policy_is_drawn_and_most_cases_have_none() {
        let menu = menu();
        let drawn = |policy: Option<&str>| {
            (0..200).filter(|&number| menu.draw(1, number).policy.as_deref() == policy).count()
        };
        assert!(drawn(Some("tick=phased")) > 10 && drawn(Some("lru=lazy")) > 10);
        assert!(drawn(None) > 100);
    }

    #[test]
    fn a_mechanism_of_the_list_gives_what_a_call_chooses() {
        let of = serde_json::json!({"key": "tick", "policies": [{"name": "a"}, {"name": "b"}]});
        assert_eq!(policies(&of), Some(vec!["tick=a".into(), "tick=b".into()]));
        assert_eq!(policies(&serde_json::json!({"key": "tick"})), None);
    }

    #[test]
    fn values_are_in_range_and_runs_short() {
        let menu = menu();
        for number in 0..500 {
            let case = menu.draw(3, number);
            let value = |name: &str| {
                let found = case.set.iter().find(|setting| setting.name == name);
                found.map(|setting| setting.value.clone())
            };
            if let Some(pages) = value("pages") {
                assert!((1..=64).contains(&pages.parse::<u64>().expect("a count")), "{case}");
            }
            if let Some(window) = value("window_ms") {
                assert!((0.1..=1.25).contains(&window.parse::<f64>().expect("a number")), "{case}");
            }
            assert!(value("layout").is_some(), "{case}");
        }
    }
}
