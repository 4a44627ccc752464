//! `--fail-if` of `path stall`: limits on how many exchanges stall and for how long. Pure.

use std::str::FromStr;

use horolog_record::{LimitResult, LimitUnit, PathStallResult, SocketOption, StallPattern};

use crate::values;

/// A limit, such as `stalled>0%`: it is broken where it holds.
#[derive(Clone, Debug)]
pub(super) struct Limit {
    expression: String,
    metric: Metric,
    bound: f64,
}

#[derive(Clone, Copy, Debug)]
enum Metric {
    Stalled,
    Longest,
}

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = "write 'stalled' and a share or 'longest' and a time, with '>' between them, such \
                    as 'stalled>0%' or 'longest>100ms'";
        let (name, bound) = text.split_once('>').ok_or(form)?;
        let (metric, bound) = match name.trim() {
            "stalled" => (Metric::Stalled, values::ratio(bound.trim()).map_err(|_| form)?),
            "longest" => {
                let bound = values::duration(bound.trim()).map_err(|_| form)?;
                (Metric::Longest, bound.as_secs_f64() * 1e9)
            }
            _ => return Err(form.to_owned()),
        };
        Ok(Self { expression: text.to_owned(), metric, bound })
    }
}

impl Limit {
    /// Holds a result against the limit. What was not measured breaks it.
    pub(super) fn judge(&self, result: &PathStallResult) -> LimitResult {
        let (value, unit) = match self.metric {
            Metric::Stalled => (stalled(result), LimitUnit::Ratio),
            Metric::Longest => (longest(result), LimitUnit::Ns),
        };
        LimitResult {
            expression: self.expression.clone(),
            unit,
            bound: self.bound,
            value,
            trial: None,
            failed: value.is_none_or(|value| value > self.bound),
        }
    }
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

fn plain(result: &PathStallResult) -> impl Iterator<Item = &horolog_record::StallCell> {
    // A cork that is forgotten always waits.
    result.cells.iter().filter(|cell| {
        cell.option == SocketOption::None && cell.pattern != StallPattern::CorkForgotten
    })
}

fn stalled(result: &PathStallResult) -> Option<f64> {
    let Some(watch) = &result.watched else {
        let (stalled, all) = plain(result)
            .fold((0, 0), |(part, all), cell| (part + cell.stalled, all + cell.exchanges));
        return share(stalled, all);
    };
    let stalls = |one: &horolog_record::WatchedConnection| one.client_stalls + one.server_stalls;
    let stalled: u64 = watch.connections.iter().map(stalls).sum();
    match watch.connections.iter().map(|one| one.answers).sum::<Option<u64>>() {
        Some(answers) => share(stalled, answers).map(|share| share.min(1.0)),
        // Sockets tell no number of answers: any stall is the whole.
        None if stalled > 0 => Some(1.0),
        None => (!watch.connections.is_empty()).then_some(0.0),
    }
}

fn longest(result: &PathStallResult) -> Option<f64> {
    let Some(watch) = &result.watched else {
        let all = plain(result).filter_map(|cell| cell.exchange_ns.as_ref());
        return all.map(|times| times.max as f64).reduce(f64::max);
    };
    let all = watch.connections.iter().filter_map(|one| one.stall_ns.as_ref());
    let longest = all.map(|times| times.max as f64).reduce(f64::max);
    longest.or_else(|| (!watch.connections.is_empty()).then_some(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read() {
        let limit: Limit = "stalled>0%".parse().unwrap();
        assert!(matches!(limit.metric, Metric::Stalled) && limit.bound == 0.0);
        let limit: Limit = "longest > 100ms".parse().unwrap();
        assert_eq!(limit.bound as u64, 100_000_000);
        for wrong in ["", "stalled", "stalled<1%", "longest>", "p99>1ms", "stalled>200%"] {
            assert!(wrong.parse::<Limit>().is_err(), "{wrong}");
        }
    }
}
