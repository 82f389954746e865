//! Scaled holds of one lock class: of the call, and of a study's own parameters.

use mmscale_sim::HoldScale;

/// The key among a document's parameters, which no study and no script can declare.
pub(crate) const HOLD_KEY: &str = "--hold";

/// Formats a scale as the option has it, with the factor that the run uses.
pub(crate) fn shown(scale: HoldScale) -> String {
    format!("{}={}", scale.class.name(), f64::from(scale.factor_1024) / 1024.0)
}

/// Returns the scale of a run whose study has one of its own.
///
/// # Errors
/// Both scale another class: a machine scales one.
pub(crate) fn combined(
    own: Option<HoldScale>,
    asked: Option<HoldScale>,
) -> Result<Option<HoldScale>, String> {
    let own = own.filter(|own| own.factor_1024 != 1024);
    let (Some(own), Some(asked)) = (own, asked) else { return Ok(asked.or(own)) };
    if own.class != asked.class {
        return Err(format!(
            "the parameters of the study scale the holds of {} already, and a run scales one class \
             only: leave them at their defaults, or leave out those of {}",
            own.class.name(),
            asked.class.name()
        ));
    }
    let factor_1024 = (u64::from(own.factor_1024) * u64::from(asked.factor_1024)) >> 10;
    Ok(Some(HoldScale { factor_1024: u32::try_from(factor_1024).unwrap_or(u32::MAX), ..own }))
}

#[cfg(test)]
mod tests {
    use mmscale_arch::LockClass;

    use super::*;

    fn scale(class: LockClass, factor: u32) -> HoldScale {
        HoldScale { class, factor_1024: factor * 512 }
    }

    #[test]
    fn scales_of_one_class_multiply_and_those_of_two_are_refused() {
        let zone = |halves| Some(scale(LockClass::Zone, halves));
        let lruvec = Some(scale(LockClass::Lruvec, 4));
        assert_eq!(combined(zone(12), zone(1)), Ok(zone(6)));
        assert_eq!(combined(zone(12), None), Ok(zone(12)));
        assert_eq!(combined(zone(2), lruvec), Ok(lruvec), "a factor of 1 scales nothing");
        let why = combined(zone(12), lruvec).unwrap_err();
        assert!(why.contains("zone") && why.contains("lruvec"), "{why}");
        assert_eq!(shown(scale(LockClass::Zone, 1)), "zone=0.5");
    }
}
