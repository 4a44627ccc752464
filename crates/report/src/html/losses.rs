//! Bars of the losses of a run by location, and of the results of several servers.

use horolog_record::{DemoCandidate, LoadResult};

use super::bars::{bar, row, table};
use super::escape::each;
use crate::units::{full_count, percent_of};
use crate::verdict::{BestRate, LossTotals, location_name};

/// Returns the losses of all trials together by location.
pub(crate) fn losses(result: &LoadResult) -> String {
    let losses = LossTotals::of(&result.trials);
    if losses.sent == 0 {
        return String::new();
    }
    let sent = full_count(losses.sent);
    if losses.lost == 0 {
        return format!("<p>0 of {sent} requests lost.</p>\n");
    }
    let rows = each(&losses.by_location, |(location, count)| {
        let numbers = [&percent_of(*count, losses.lost)[..], &full_count(*count)];
        row(location_name(*location), numbers, &bar(Some(*count as f64 / losses.lost as f64)))
    });
    let lead = format!(
        "<p class=\"hint\">{} of {sent} requests ({}) over all trials, including those above the \
         server's limit.</p>\n",
        full_count(losses.lost),
        percent_of(losses.lost, losses.sent),
    );
    lead + &table(["location", "share of losses", "requests", ""], &rows)
}

/// Returns bars of the highest rate of each server, with the ratio to the first.
pub(super) fn candidates(candidates: &[DemoCandidate], rate_title: &str) -> String {
    let all: Vec<_> = candidates.iter().map(|candidate| BestRate::of(&candidate.load)).collect();
    let Some(base) = all.first() else { return String::new() };
    let highest = all.iter().filter_map(|highest| highest.held()).fold(0.0, f64::max);
    let rows = each(candidates.iter().zip(&all), |(candidate, this)| {
        let share = this.held().filter(|_| highest > 0.0).map(|rate| rate / highest);
        row(&candidate.label, [&this.text(), &this.ratio_to(*base)], &bar(share))
    });
    table(["server", rate_title, "ratio", ""], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn the_bars_are_shares_of_the_losses() {
        let markup = losses(&fixture::load());
        assert!(markup.contains("server&#39;s interface"), "{markup}");
        assert!(markup.contains("width:80.00%"), "{markup}");
        assert!(markup.contains("80.00%</td>"), "{markup}");
    }

    #[test]
    fn a_run_without_loss_is_reported_as_such() {
        let mut result = fixture::load();
        result.trials.retain(|trial| trial.lost == 0);
        assert!(losses(&result).starts_with("<p>0 of "));
        assert_eq!(losses(&fixture::empty()), "");
    }

    #[test]
    fn the_fastest_server_has_the_full_bar_and_the_sign_of_its_bound() {
        let markup = candidates(&fixture::demo().candidates, "lossless");
        assert_eq!(markup.matches("width:100.00%").count(), 1);
        assert!(markup.contains("≥ 3.83 M/s"), "{markup}");
        assert!(markup.contains(">1.00×<"), "{markup}");
    }
}
