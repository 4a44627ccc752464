//! Bars of the losses of a run by location.

use horolog_record::LoadResult;

use super::bars::{bar, row, table};
use super::escape::each;
use crate::units::{full_count, percent_of};
use crate::verdict::{LossTotals, location_name};

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
}
