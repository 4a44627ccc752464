//! Headlines of pages for results without a search: the most informative metric and a sentence. A
//! metric that was not measured is marked as such.

use horolog_record::{ClockLogResult, QueryResult};

use super::sections::verdict;
use crate::clock_log::clock_name;
use crate::units::{ABSENT, human_ns, signed_mean_ns, signed_ns};

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

/// Returns the server with the lowest error bound.
pub(super) fn query(result: &QueryResult) -> String {
    let known = result.servers.iter().filter_map(|server| Some((server, server.best.as_ref()?)));
    let best = known.min_by_key(|(_, best)| best.bound_ns);
    let summary = best.map_or_else(
        || "No server sent a valid reply.".to_owned(),
        |(server, _)| format!("{}, relative to this host's clock.", server.name),
    );
    let figure = best
        .map(|(_, best)| format!("{} ± {}", signed_ns(best.offset_ns), human_ns(best.bound_ns)));
    top("Offset", figure, &summary)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    const NOTHING: &str = "not measured";

    #[test]
    fn the_figure_is_one_of_the_result() {
        let markup = query(&fixture::query(20));
        let (_, shown) = markup.split_once("class=\"figure\">").unwrap();
        let (line, _) = shown.split_once('\n').unwrap();
        assert!(line.contains('±') && !line.contains(NOTHING), "{line}");
    }

    #[test]
    fn missing_measurements_are_reported() {
        let mut result = fixture::query(20);
        result.servers.clear();
        assert!(query(&result).contains(NOTHING));
    }
}
