//! Metrics of `path stall` for `--fail-if`: the share of stalled exchanges and the longest stall.
//! Pure.

use horolog_record::{
    Distribution, LimitUnit, PathStallResult, SocketOption, StallCell, StallPattern,
    WatchedConnection,
};
use horolog_report::stall_pattern;

use crate::limit::{Limit, LimitedMetric};

/// A metric, with the names of its values; `None` if it was not measured.
pub(super) type StallMetric = fn(&PathStallResult) -> Vec<NamedMetric>;
type NamedMetric = (String, Option<f64>);

const FIGURES: [LimitedMetric<StallMetric>; 2] =
    [("stalled", LimitUnit::Ratio, stalled), ("longest", LimitUnit::Ns, longest)];

pub(super) fn limit(text: &str) -> Result<Limit<StallMetric>, String> {
    Limit::parse(text, FIGURES)
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

fn plain(result: &PathStallResult) -> impl Iterator<Item = &StallCell> {
    // A forgotten cork always waits.
    result.cells.iter().filter(|cell| {
        cell.option == SocketOption::None && cell.pattern != StallPattern::CorkForgotten
    })
}

fn stalled(result: &PathStallResult) -> Vec<NamedMetric> {
    let Some(watch) = &result.watched else {
        let (stalled, all) = plain(result)
            .fold((0, 0), |(part, all), cell| (part + cell.stalled, all + cell.exchanges));
        return vec![("all patterns without an option".to_owned(), share(stalled, all))];
    };
    let stalls = |one: &WatchedConnection| one.client_stalls + one.server_stalls;
    let stalled: u64 = watch.connections.iter().map(stalls).sum();
    let share = match watch.connections.iter().map(|one| one.answers).sum::<Option<u64>>() {
        Some(answers) => share(stalled, answers).map(|share| share.min(1.0)),
        // Sockets do not report the number of responses: any stall counts as the whole.
        None if stalled > 0 => Some(1.0),
        None => (!watch.connections.is_empty()).then_some(0.0),
    };
    vec![("all connections".to_owned(), share)]
}

fn longest(result: &PathStallResult) -> Vec<NamedMetric> {
    let max = |times: &Distribution| Some(times.max as f64);
    let Some(watch) = &result.watched else {
        let all = plain(result).filter_map(|cell| {
            let times = cell.exchange_ns.as_ref()?;
            Some((format!("{}, no option", stall_pattern(cell)), max(times)))
        });
        return all.collect();
    };
    let of = |one: &WatchedConnection| {
        // A connection without stalls was watched as well.
        let longest = one.stall_ns.as_ref().map_or(Some(0.0), max);
        (format!("{} from {}", one.server, one.client), longest)
    };
    watch.connections.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_are_limited_by_share_and_time() {
        assert!(limit("stalled>0%").is_ok() && limit("longest > 100ms").is_ok());
        for wrong in ["", "stalled", "stalled<1%", "longest>", "p99>1ms", "stalled>200%"] {
            assert!(limit(wrong).is_err(), "{wrong}");
        }
    }
}
