//! Metrics of results, on which limits can be set. Each kind lists its metrics once, in `kinds`.

use std::fmt;
use std::sync::Arc;

use horolog_record::{Distribution, Finding, LimitResult, LimitUnit};
use serde::Serialize;

use crate::document::RenderableResult;

/// Result of a measurement whose metrics can be limited.
pub trait MeasuredResult: RenderableResult + Serialize + Sized {
    /// Returns the metrics of this kind of result.
    fn metrics() -> Vec<Metric<Self>>;

    /// Returns the outcomes of the limits, and the findings that can make the measurement fail.
    fn judgement(&mut self) -> (&mut Vec<LimitResult>, Vec<&Finding>);
}

/// Implements [`MeasuredResult::judgement`] for a result with the fields `limits` and `findings`.
macro_rules! judgement_of_fields {
    () => {
        fn judgement(
            &mut self,
        ) -> (&mut Vec<horolog_record::LimitResult>, Vec<&horolog_record::Finding>) {
            (&mut self.limits, self.findings.iter().collect())
        }
    };
}
pub(crate) use judgement_of_fields;

/// Name of an item of a result, such as a core, a row or a server (empty if the result has one),
/// with the value of a metric; `None` if it was not measured.
pub type NamedValue = (String, Option<f64>);

/// Name of an item of a result, with the distribution of times of a metric, in ns.
pub(crate) type NamedTimes<'a> = (String, Option<&'a Distribution>);

/// Name of a statistic, and the function that returns it from a distribution, in ns.
pub(crate) type DistributionStatistic = (&'static str, fn(&Distribution) -> f64);

/// Arithmetic mean.
pub(crate) const MEAN: DistributionStatistic = ("mean", |times| times.mean);
/// 99th percentile.
pub(crate) const P99: DistributionStatistic = ("p99", |times| times.p99 as f64);
/// 99.9th percentile.
pub(crate) const P99_9: DistributionStatistic = ("p99.9", |times| times.p99_9 as f64);
/// Maximum.
pub(crate) const MAX: DistributionStatistic = ("max", |times| times.max as f64);
/// All statistics that can be limited.
pub(crate) const STATISTICS: [DistributionStatistic; 6] =
    [MEAN, ("p50", |times| times.p50 as f64), ("p90", |times| times.p90 as f64), P99, P99_9, MAX];

/// Function that returns the values of a metric in a result, one for each item.
type MetricReader<R> = Arc<dyn Fn(&R) -> Vec<NamedValue> + Send + Sync>;

/// Metric of a kind of result.
pub struct Metric<R> {
    /// Name in an expression of `--fail-if`.
    pub name: String,
    /// Unit of the values.
    pub unit: LimitUnit,
    read: MetricReader<R>,
}

impl<R: 'static> Metric<R> {
    /// Returns a metric of this name, whose values the function `read` returns.
    pub fn new(
        name: impl Into<String>,
        unit: LimitUnit,
        read: impl Fn(&R) -> Vec<NamedValue> + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), unit, read: Arc::new(read) }
    }

    /// Returns the values of the metric in a result, one for each item.
    #[must_use]
    pub fn values(&self, result: &R) -> Vec<NamedValue> {
        (self.read)(result)
    }

    /// Returns metrics of each of `statistics` of the distributions that `times` returns. The names
    /// are those of the statistics after `prefix`.
    pub(crate) fn of_times<const N: usize>(
        prefix: &str,
        statistics: [DistributionStatistic; N],
        times: fn(&R) -> Vec<NamedTimes<'_>>,
    ) -> [Self; N] {
        statistics.map(|(name, statistic)| {
            Self::new(format!("{prefix}{name}"), LimitUnit::Ns, move |result| {
                let all = times(result).into_iter();
                all.map(|(item, times)| (item, times.map(statistic))).collect()
            })
        })
    }

    /// Returns the metric, with a prefix to its name, as one of the results `W` in which `part`
    /// finds a result of this kind; it has no values where `part` finds none.
    pub(crate) fn within<W: 'static>(self, prefix: &str, part: fn(&W) -> Option<&R>) -> Metric<W> {
        let Self { name, unit, read } = self;
        Metric::new(format!("{prefix}{name}"), unit, move |whole| {
            part(whole).map(|result| read(result)).unwrap_or_default()
        })
    }
}

impl<R> Clone for Metric<R> {
    fn clone(&self) -> Self {
        Self { name: self.name.clone(), unit: self.unit, read: Arc::clone(&self.read) }
    }
}

impl<R> fmt::Debug for Metric<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metric")
            .field("name", &self.name)
            .field("unit", &self.unit)
            .finish_non_exhaustive()
    }
}

/// Returns `part` as a share of `whole`; `None` if `whole` is 0.
pub(crate) fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use horolog_record as record;
    use serde::de::DeserializeOwned;

    use super::*;
    use crate::fixture;

    /// Returns the values of all metrics of a sample result, one line each.
    fn values_of<R: MeasuredResult + DeserializeOwned + 'static>(sample: &str) -> String {
        let result: R = fixture::sample(sample);
        let mut lines = String::new();
        for metric in R::metrics() {
            for (item, value) in metric.values(&result) {
                let (name, unit) = (&metric.name, metric.unit);
                writeln!(lines, "{sample}: {name} ({unit:?}) of '{item}': {value:?}").unwrap();
            }
        }
        lines
    }

    #[test]
    fn values_of_the_samples_are_as_expected() {
        let lines = [
            values_of::<record::ClockCompareResult>("clock_compare"),
            values_of::<record::ClockSimulateResult>("clock"),
            values_of::<record::CyclePredictResult>("cycle_predict"),
            values_of::<record::CycleResult>("cycle"),
            values_of::<record::CycleTestResult>("cycle_test"),
            values_of::<record::HostAllResult>("host_all"),
            values_of::<record::PathStallResult>("path_stall"),
            values_of::<record::PathTcpResult>("path_tcp"),
            values_of::<record::PathUdpResult>("path_udp"),
            values_of::<record::QueryResult>("query"),
            values_of::<record::RelayTreeResult>("relay_tree"),
        ];
        let lines = lines.concat();
        assert_eq!(lines, include_str!("metrics.txt"), "\n{lines}");
    }
}
