//! Runs of all subsets of some policies on common seeds: which part of a change contributes what.
//!
//! The value of a subset is the logarithm of a metric, so that contributions are factors and those
//! of all parts multiply to the change of the whole. The share of a part is its Shapley value
//! (L. S. Shapley, 1953): its contribution on average over all orders in which the parts can be
//! added. The interaction of two parts is the Shapley interaction index (Grabisch and Roubens,
//! 1999). Each is computed for every seed by itself; estimate and interval are over seeds.

use mmscale_document::{
    ABLATION_SCHEMA, AblatedMetric, Ablation, ArmRecord, Contribution, Document, Interaction,
    PartContribution, ROUNDS_METRIC,
};
use mmscale_stats::paired;

use crate::plan::{CallError, Plan};

/// The most parts: their subsets are arms of one run.
const PARTS: usize = 6;

/// A subset of the parts: a bit for each.
type Subset = usize;

/// Returns the policies of each subset but the empty one, as `--policy` takes them, in the order of
/// their bits.
///
/// # Errors
/// Fewer than two parts or more than six, or one that is not `KEY=POLICY`.
pub fn subsets(parts: &[String]) -> Result<Vec<String>, CallError> {
    let wrong = |what: String| Err(CallError::Other(what));
    if !(2..=PARTS).contains(&parts.len()) {
        return wrong(format!(
            "--of names {}: name two to {PARTS} policies, as in --of tick=phased,lru=lazy \
             (mmscale list policies)",
            match parts.len() {
                0 => "no policy".to_owned(),
                1 => "one policy".to_owned(),
                more => format!("{more} policies"),
            }
        ));
    }
    if let Some(part) = parts.iter().find(|part| part.matches('=').count() != 1) {
        return wrong(format!(
            "--of {part}: a part is KEY=POLICY, as in --of tick=phased,lru=lazy"
        ));
    }
    let of = |subset: Subset| {
        let named: Vec<&str> = parts
            .iter()
            .enumerate()
            .filter(|(at, _)| subset >> at & 1 == 1)
            .map(|(_, p)| &**p)
            .collect();
        named.join(",")
    };
    Ok((1..1 << parts.len()).map(of).collect())
}

/// Returns what each part contributes, from the run of a plan whose arms are the base and
/// [`subsets`] of `parts`, in this order.
pub fn ablation(
    plan: &Plan,
    document: &Document,
    parts: &[String],
    metrics: &[&'static str],
) -> Ablation {
    let base = &document.arms[0];
    Ablation {
        schema: ABLATION_SCHEMA.to_owned(),
        build: plan.origin.build.clone(),
        command: plan.origin.command.clone(),
        study: document.study.clone(),
        arm: base.arm.clone(),
        profile: plan.profile_name.clone(),
        profile_hash: plan.profile.as_ref().map_or(String::new(), |p| format!("{:016x}", p.hash)),
        cpus: plan.cpus as u32,
        params: plan.shown_params(),
        seeds: base.seeds.clone(),
        rounds_min: document
            .arms
            .iter()
            .filter_map(|arm| Some(arm.metrics.get(ROUNDS_METRIC)?.mean))
            .min_by(f64::total_cmp),
        parts: parts.to_vec(),
        metrics: metrics.iter().filter_map(|name| of_metric(&document.arms, parts, name)).collect(),
    }
}

/// Returns the contributions to one metric; `None` if the study has none of this name.
fn of_metric(arms: &[ArmRecord], parts: &[String], name: &str) -> Option<AblatedMetric> {
    let base = arms.first()?.metrics.get(name)?;
    let mut found = AblatedMetric {
        name: name.to_owned(),
        unit: base.unit.clone(),
        base: base.mean,
        whole: None,
        parts: Vec::new(),
        pairs: Vec::new(),
    };
    let of_seed = |seed: usize| -> Option<Game> {
        let value =
            |arm: &ArmRecord| Some(arm.metrics.get(name)?.values.get(seed)?.as_ref()?.as_f64());
        let logs = arms.iter().map(|arm| value(arm).filter(|value| *value > 0.0).map(f64::ln));
        Some(Game { parts: parts.len(), value: logs.collect::<Option<_>>()? })
    };
    let games: Option<Vec<Game>> = (0..arms[0].seeds.len()).map(of_seed).collect();
    let Some(games) = games.filter(|games| !games.is_empty()) else { return Some(found) };
    let over_seeds = |of: &dyn Fn(&Game) -> f64| {
        let factors: Vec<(f64, f64)> = games.iter().map(|game| (1.0, of(game).exp())).collect();
        let change = paired(&factors)?;
        let percent = |factor: f64| 100.0 * (factor - 1.0);
        let ci95 = change.ci95.map(|ends| ends.map(percent));
        Some(Contribution { percent: percent(change.estimate), ci95 })
    };
    found.whole = over_seeds(&|game| game.value[game.whole()] - game.value[0]);
    for (at, part) in parts.iter().enumerate() {
        found.parts.push(PartContribution {
            part: part.clone(),
            alone: over_seeds(&|game| game.added(0, at))?,
            on_top: over_seeds(&|game| game.added(game.whole() & !(1 << at), at))?,
            share: over_seeds(&|game| game.share(at))?,
        });
        for (other, second) in parts.iter().enumerate().skip(at + 1) {
            let effect = over_seeds(&|game| game.interaction(at, other))?;
            found.pairs.push(Interaction { parts: [part.clone(), second.clone()], effect });
        }
    }
    Some(found)
}

/// The values of all subsets with one seed.
struct Game {
    parts: usize,
    /// By subset.
    value: Vec<f64>,
}

impl Game {
    fn whole(&self) -> Subset {
        (1 << self.parts) - 1
    }
    /// Returns what a part adds to a subset without it.
    fn added(&self, to: Subset, part: usize) -> f64 {
        self.value[to | 1 << part] - self.value[to]
    }
    /// Returns the subsets without the parts of `without`, with the share of the orders of
    /// `of` parts in which exactly they come first.
    fn before(&self, without: Subset, of: usize) -> impl Iterator<Item = (Subset, f64)> {
        let weight = move |size: usize| factorial(size) * factorial(of - size - 1) / factorial(of);
        let all = (0..=self.whole()).filter(move |subset| subset & without == 0);
        all.map(move |subset| (subset, weight(subset.count_ones() as usize)))
    }
    fn share(&self, part: usize) -> f64 {
        let all = self.before(1 << part, self.parts);
        all.map(|(subset, weight)| weight * self.added(subset, part)).sum()
    }
    fn interaction(&self, part: usize, other: usize) -> f64 {
        let all = self.before(1 << part | 1 << other, self.parts - 1);
        let more =
            |subset: Subset| self.added(subset | 1 << other, part) - self.added(subset, part);
        all.map(|(subset, weight)| weight * more(subset)).sum()
    }
}

fn factorial(of: usize) -> f64 {
    (1..=of).map(|number| number as f64).product()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A game whose value is the sum of effects of the parts that are in a subset.
    fn planted(parts: usize, effects: &[(Subset, f64)]) -> Game {
        let value = |subset: Subset| {
            let there = effects.iter().filter(|(needs, _)| subset & needs == *needs);
            there.map(|(_, effect)| effect).sum()
        };
        Game { parts, value: (0..1 << parts).map(value).collect() }
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-12
    }

    #[test]
    fn planted_effects_are_found_in_every_number_of_parts() {
        for parts in 2..=PARTS {
            let own: Vec<f64> = (0..parts).map(|part| part as f64 - 1.5).collect();
            let mut effects: Vec<(Subset, f64)> =
                own.iter().enumerate().map(|(part, effect)| (1 << part, *effect)).collect();
            // The first two help each other; of the last two only one counts.
            let last = parts - 1;
            effects.push((0b11, 0.5));
            let game = planted(parts, &effects);
            for (part, effect) in own.iter().enumerate() {
                let half = if part < 2 { 0.25 } else { 0.0 };
                assert!(near(game.added(0, part), *effect), "{parts}, {part}");
                assert!(near(game.share(part), effect + half), "{parts}, {part}");
            }
            assert!(near(game.interaction(0, 1), 0.5), "{parts}");
            assert!(parts == 2 || near(game.interaction(0, last), 0.0), "{parts}");
            let sum: f64 = (0..parts).map(|part| game.share(part)).sum();
            assert!(near(sum, game.value[game.whole()] - game.value[0]), "{parts}");
        }
    }

    /// Two parts of which each is enough share the effect, with a negative interaction.
    #[test]
    fn parts_that_do_the_same_share_it() {
        let game = planted(3, &[(0b001, 1.0), (0b010, 1.0), (0b011, -1.0), (0b100, 0.2)]);
        assert!(near(game.share(0), 0.5) && near(game.share(1), 0.5) && near(game.share(2), 0.2));
        assert!(near(game.interaction(0, 1), -1.0) && near(game.interaction(0, 2), 0.0));
        assert!(near(game.added(game.whole() & !1, 0), 0.0), "on top it adds nothing");
    }

    /// All three are needed: pairs of them have nothing alone.
    #[test]
    fn an_effect_of_three_is_divided_among_them() {
        let game = planted(3, &[(0b111, 0.9)]);
        assert!((0..3).all(|part| near(game.share(part), 0.3)));
        assert!(near(game.interaction(0, 1), 0.45) && near(game.added(0, 0), 0.0));
    }

    #[test]
    fn subsets_are_policies_in_the_order_of_their_bits() {
        let parts = ["tick=phased", "lru=lazy"].map(ToOwned::to_owned);
        let all = subsets(&parts).expect("two are enough");
        assert_eq!(all, ["tick=phased", "lru=lazy", "tick=phased,lru=lazy"]);
        let many: Vec<String> = (0..7).map(|part| format!("k{part}=p")).collect();
        for wrong in [&parts[..1], &many, &[], &["lru".to_owned(), "tick=phased".to_owned()]] {
            let why = subsets(wrong).expect_err("too few, too many, or no policy").to_string();
            assert!(why.contains("--of tick=phased,lru=lazy"), "{why}");
        }
    }
}
