//! Results of each kind of requests in a mix, as text.

use horolog_record::LoadResult;

use crate::units::{full_count, percent_of};

/// Returns one line with the totals of all trials; `None` for a load of a single kind.
pub(super) fn line(result: &LoadResult) -> Option<String> {
    let first = result.trials.first().filter(|trial| !trial.parts.is_empty())?;
    let of = |name: &str| {
        let trials = result.trials.iter().flat_map(|trial| &trial.parts);
        let (sent, lost) =
            trials.filter(|part| part.name == name).fold((0_u64, 0_u64), |(sent, lost), part| {
                (sent.saturating_add(part.trial.sent), lost.saturating_add(part.trial.lost))
            });
        format!("{name} {} of {}", percent_of(lost, sent), full_count(sent))
    };
    let kinds: Vec<_> = first.parts.iter().map(|part| of(&part.name)).collect();
    Some(format!("Loss by request kind: {}.", kinds.join(", ")))
}

#[cfg(test)]
mod tests {
    use horolog_record::{MixRequestKindResult, RequestMode};

    use super::*;
    use crate::fixture;

    #[test]
    fn all_trials_are_summed_up() {
        let mut result = fixture::load();
        assert_eq!(line(&result), None);
        for trial in &mut result.trials {
            let counts = |sent, lost| {
                let trial = fixture::trial_without_requests();
                horolog_record::Trial { sent, lost, ..trial }
            };
            let part = |name: &str, sent, lost| {
                let (mode, trial) = (RequestMode::NtpBasic, counts(sent, lost));
                MixRequestKindResult { name: name.to_owned(), mode, share: 0.5, trial }
            };
            trial.parts = vec![part("ntp", 1000, 0), part("ntp-v3", 100, 25)];
        }
        let text = line(&result).unwrap();
        let trials = result.trials.len() as u64;
        let (plain, old) = (full_count(1000 * trials), full_count(100 * trials));
        let expected = format!("ntp 0.00% of {plain}, ntp-v3 25.00% of {old}.");
        assert!(text.ends_with(&expected), "{text}");
    }
}
