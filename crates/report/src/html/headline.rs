//! Headlines of pages for results without a search: the most informative metric and a sentence. A
//! metric that was not measured is marked as such.

use horolog_record::ClockLogResult;

use super::sections::verdict;
use crate::clock_log::clock_name;
use crate::units::{ABSENT, signed_mean_ns};

/// Returns a verdict without times.
fn top(name: &str, figure: Option<String>, sentence: &str) -> String {
    let figure = figure.unwrap_or_else(|| ABSENT.to_owned());
    verdict(name, &figure, sentence, &[])
}

/// Returns the headline of a clock log, for the clock with the most lines.
pub(super) fn clock_log(result: &ClockLogResult) -> String {
    let most = result.clocks.iter().max_by_key(|clock| clock.offsets.len());
    let summary = most.map_or_else(
        || "The log contains no clock.".to_owned(),
        |clock| format!("{}, in the last line with an offset.", clock_name(clock)),
    );
    let last = most.and_then(|clock| clock.offsets.last());
    top("Last offset", last.map(|point| signed_mean_ns(point.value)), &summary)
}
