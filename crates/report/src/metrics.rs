//! Metrics of results: what can be limited (`--fail-if`) and what is compared (`runs compare`).
//! Each kind lists its metrics once, in `kinds`.

use std::fmt;
use std::sync::Arc;

use horolog_record::{Distribution, DistributionMergeError, Finding, LimitResult, LimitUnit};
use horolog_stats::Histogram;
use serde::Serialize;

use crate::document::RenderableResult;

/// Result of a measurement whose metrics can be limited.
pub trait MeasuredResult: RenderableResult + Serialize + Sized {
    /// Returns the outcomes of the limits, and the findings that can make the measurement fail.
    fn judgement(&mut self) -> (&mut Vec<LimitResult>, Vec<&Finding>);
}

/// Implements [`MeasuredResult`] for a result with the fields `limits` and `findings`.
macro_rules! judged_by_fields {
    ($result:ty) => {
        impl crate::metrics::MeasuredResult for $result {
            fn judgement(
                &mut self,
            ) -> (&mut Vec<horolog_record::LimitResult>, Vec<&horolog_record::Finding>) {
                (&mut self.limits, self.findings.iter().collect())
            }
        }
    };
}
pub(crate) use judged_by_fields;

/// Name of an item of a result, such as a core, a row or a server (empty if the result has one),
/// with the value of a metric; `None` if it was not measured.
pub type NamedValue = (String, Option<f64>);

/// Items of a result, such as its cores, rows or servers, with their names.
pub(crate) type NamedItems<'a, I> = Vec<(String, &'a I)>;

/// Names of the items of a result, with the value of a metric.
pub(crate) type NamedMetricValues<'a> = Vec<(String, MetricValue<'a>)>;

/// Single value, and the bounds of the search that found it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SingleValue {
    pub(crate) value: f64,
    /// Bounds found by a search, 0 and infinity if it found none; `None` if the value is not from a
    /// search.
    pub(crate) bounds: Option<[f64; 2]>,
}

/// Value of a metric of one item. Larger times and ratios are worse, smaller rates, and offsets
/// further from 0.
#[derive(Clone, Debug)]
pub(crate) enum MetricValue<'a> {
    NotMeasured,
    /// Attempt that failed, so that there is no value.
    Failed,
    /// Number that is limited only.
    Number(f64),
    /// Numbers of events and of trials.
    Ratio([u64; 2]),
    /// Distribution of times.
    Times(&'a Distribution),
    /// Distribution of times as a histogram, which is compared only.
    Histogram(Box<Histogram>),
    /// Time in ns.
    Time(SingleValue),
    Rate(SingleValue),
    /// Offset and its error bound, in ns.
    Offset(f64, f64),
}

impl MetricValue<'_> {
    /// Returns a time in ns from a single reading.
    pub(crate) fn time(ns: Option<f64>) -> Self {
        known(ns, |value| MetricValue::Time(SingleValue { value, bounds: None }))
    }

    /// Returns the time in ns after which an attempt succeeded; `None` if it failed.
    pub(crate) fn attempt(ns: Option<f64>) -> Self {
        ns.map_or(Self::Failed, |ns| Self::time(Some(ns)))
    }

    /// Returns a rate that was measured.
    pub(crate) const fn rate(value: f64) -> Self {
        Self::Rate(SingleValue { value, bounds: None })
    }

    /// Returns a rate that a search found; bounds in the wrong order are ignored.
    pub(crate) fn found_rate(value: f64, lower: Option<f64>, upper: Option<f64>) -> Self {
        let bounds = [lower.unwrap_or(0.0), upper.unwrap_or(f64::INFINITY)];
        let bounds = if bounds[0] <= bounds[1] { bounds } else { [0.0, f64::INFINITY] };
        Self::Rate(SingleValue { value, bounds: Some(bounds) })
    }

    /// Returns the number on which limits are set: of times the statistic, of an offset its
    /// distance from 0. A rate of 0 was not measured.
    fn number(&self, statistic: Option<DistributionStatistic>) -> Option<f64> {
        match self {
            Self::NotMeasured | Self::Failed | Self::Histogram(_) => None,
            Self::Number(number) => Some(*number),
            Self::Ratio([events, trials]) => share(*events, *trials),
            Self::Times(times) => Some(statistic?(times)),
            Self::Time(time) => Some(time.value),
            Self::Rate(rate) => Some(rate.value).filter(|rate| *rate > 0.0),
            Self::Offset(offset, _) => Some(offset.abs()),
        }
    }

    /// Returns the value as it is compared, with its histogram decoded; `None` if it is not
    /// compared.
    fn comparable(self) -> Result<Option<MetricValue<'static>>, DistributionMergeError> {
        let value = match self {
            Self::NotMeasured | Self::Number(_) => return Ok(None),
            Self::Failed => MetricValue::Failed,
            Self::Ratio(ratio) => MetricValue::Ratio(ratio),
            // The histogram was omitted to save space.
            Self::Times(times) if times.histogram.is_empty() => return Ok(None),
            Self::Times(times) => MetricValue::Histogram(Box::new(times.decode()?)),
            Self::Histogram(histogram) => MetricValue::Histogram(histogram),
            Self::Time(time) => MetricValue::Time(time),
            Self::Rate(rate) => MetricValue::Rate(rate),
            Self::Offset(offset, error_bound) => MetricValue::Offset(offset, error_bound),
        };
        let is_comparable = match &value {
            MetricValue::Ratio([events, trials]) => *trials > 0 && events <= trials,
            MetricValue::Histogram(times) => times.count() > 0,
            MetricValue::Time(time) => time.value > 0.0,
            MetricValue::Rate(rate) => rate.value >= 0.0,
            _ => true,
        };
        Ok(is_comparable.then_some(value))
    }
}

/// Returns a value of a metric, if it was measured.
pub(crate) fn known<'a, T>(value: Option<T>, of: fn(T) -> MetricValue<'a>) -> MetricValue<'a> {
    value.map_or(MetricValue::NotMeasured, of)
}

/// Function that returns a statistic of a distribution, in ns.
type DistributionStatistic = fn(&Distribution) -> f64;

/// Statistics of times that can be limited, with their names.
pub(crate) const STATISTICS: [(&str, DistributionStatistic); 6] = [
    ("mean", |times| times.mean),
    ("p50", |times| times.p50 as f64),
    ("p90", |times| times.p90 as f64),
    ("p99", |times| times.p99 as f64),
    ("p99.9", |times| times.p99_9 as f64),
    ("max", |times| times.max as f64),
];

/// Function that returns the values of a metric in a result, one for each item.
type MetricReader<R> = Arc<dyn for<'a> Fn(&'a R) -> NamedMetricValues<'a> + Send + Sync>;

/// Metric of a kind of result, or of an item of it.
pub struct Metric<R> {
    /// Name in an expression of `--fail-if` and in a comparison.
    pub name: String,
    /// Unit of the values on which limits are set.
    pub unit: LimitUnit,
    is_limited: bool,
    is_compared: bool,
    /// True if the metric describes the measuring side, not the measured object.
    pub(crate) is_informational: bool,
    /// Statistic of the distribution that is limited.
    statistic: Option<DistributionStatistic>,
    read: MetricReader<R>,
}

impl<R: 'static> Metric<R> {
    /// Returns a metric that is limited only, whose values the function `read` returns.
    pub fn new(
        name: impl Into<String>,
        unit: LimitUnit,
        read: impl Fn(&R) -> Vec<NamedValue> + Send + Sync + 'static,
    ) -> Self {
        let named = |(item, number)| (item, known(number, MetricValue::Number));
        Self::read_by(name, Arc::new(move |result| read(result).into_iter().map(named).collect()))
            .limited_only(unit)
    }

    /// Returns a metric of a single item that is limited only.
    pub(crate) fn number(name: &str, unit: LimitUnit, number: fn(&R) -> Option<f64>) -> Self {
        Self::new(name, unit, move |item| vec![(String::new(), number(item))])
    }

    /// Returns a metric that is compared only, of the items that `values` names.
    pub(crate) fn named(name: &str, values: for<'a> fn(&'a R) -> NamedMetricValues<'a>) -> Self {
        Self::read_by(name, Arc::new(values))
    }

    /// Returns a metric of a single item that is compared only.
    pub(crate) fn value(
        name: &str,
        value: impl for<'a> Fn(&'a R) -> MetricValue<'a> + Send + Sync + 'static,
    ) -> Self {
        Self::read_by(name, Arc::new(move |item| vec![(String::new(), value(item))]))
    }

    /// Returns a metric of times that is compared only.
    pub(crate) fn times(name: &str, times: fn(&R) -> Option<&Distribution>) -> Self {
        Self::value(name, move |item| known(times(item), MetricValue::Times))
    }

    /// Returns the ratio of events to trials as a metric that is compared only.
    pub(crate) fn ratio(name: &str, counts: fn(&R) -> Option<[u64; 2]>) -> Self {
        Self::value(name, move |item| known(counts(item), MetricValue::Ratio))
    }

    /// Returns a metric of single times in ns that is compared only.
    pub(crate) fn time(name: &str, ns: fn(&R) -> Option<f64>) -> Self {
        Self::value(name, move |item| MetricValue::time(ns(item)))
    }

    fn read_by(name: impl Into<String>, read: MetricReader<R>) -> Self {
        Self {
            name: name.into(),
            unit: LimitUnit::Ns,
            is_limited: false,
            is_compared: true,
            is_informational: false,
            statistic: None,
            read,
        }
    }

    /// Returns the metric as one that is limited as well, in this unit.
    pub(crate) fn limited(self, unit: LimitUnit) -> Self {
        Self { unit, is_limited: true, ..self }
    }

    fn limited_only(self, unit: LimitUnit) -> Self {
        Self { is_compared: false, ..self.limited(unit) }
    }

    /// Returns the metric as one of the measuring side.
    pub(crate) fn informational(self) -> Self {
        Self { is_informational: true, ..self }
    }

    /// Returns metrics of all statistics of these times, which are limited only. Their names are
    /// those of the statistics after `prefix`.
    pub(crate) fn statistics(&self, prefix: &str) -> Vec<Self> {
        let of = |(name, statistic): (&str, DistributionStatistic)| Self {
            name: format!("{prefix}{name}"),
            statistic: Some(statistic),
            ..self.clone().limited_only(LimitUnit::Ns)
        };
        STATISTICS.map(of).into()
    }

    /// Returns the metric and those of its statistics.
    pub(crate) fn with_statistics(self, prefix: &str) -> Vec<Self> {
        let statistics = self.statistics(prefix);
        [self].into_iter().chain(statistics).collect()
    }

    /// Returns true if limits can be set on the metric.
    pub(crate) const fn is_limited(&self) -> bool {
        self.is_limited
    }

    /// Returns the values of the metric in a result, one for each item.
    #[must_use]
    pub fn values(&self, result: &R) -> Vec<NamedValue> {
        let values = (self.read)(result).into_iter();
        values.map(|(item, value)| (item, value.number(self.statistic))).collect()
    }

    /// Returns the values of the metric as they are compared, one for each item; `None` if it has
    /// none. Fails with the name of the metric and item whose histogram is damaged.
    pub(crate) fn compared_values(
        &self,
        result: &R,
    ) -> Result<Vec<(String, Option<MetricValue<'static>>)>, String> {
        let all = if self.is_compared { (self.read)(result) } else { Vec::new() };
        let compared = |(item, value): (String, MetricValue<'_>)| match value.comparable() {
            Ok(value) => Ok((item, value)),
            Err(error) => {
                let name = metric_name(&self.name, &item);
                Err(format!("the histogram of {name} is damaged: {error}"))
            }
        };
        all.into_iter().map(compared).collect()
    }

    /// Returns the metric, with a prefix to its name, as one of the results `W` of which `items`
    /// returns the items.
    pub(crate) fn within<W: 'static>(
        self,
        prefix: &str,
        items: fn(&W) -> NamedItems<'_, R>,
    ) -> Metric<W> {
        let Self { name, read, .. } = self;
        let read: MetricReader<W> = Arc::new(move |whole| {
            let of_item = |(item, one): (String, _)| {
                let values = read(one).into_iter();
                values.map(move |(part, value)| (joined(&item, &part), value))
            };
            items(whole).into_iter().flat_map(of_item).collect()
        });
        Metric {
            is_limited: self.is_limited,
            is_compared: self.is_compared,
            is_informational: self.is_informational,
            statistic: self.statistic,
            unit: self.unit,
            ..Metric::read_by(format!("{prefix}{name}"), read)
        }
    }
}

/// Returns metrics of items as those of the result of which `items` returns the items.
pub(crate) fn of_items<R: 'static, I: 'static>(
    items: fn(&R) -> NamedItems<'_, I>,
    metrics: impl IntoIterator<Item = Metric<I>>,
) -> impl Iterator<Item = Metric<R>> {
    metrics.into_iter().map(move |metric| metric.within("", items))
}

/// Returns the name of an item of an item.
pub(crate) fn joined(item: &str, part: &str) -> String {
    match (item, part) {
        (item, "") => item.to_owned(),
        ("", part) => part.to_owned(),
        (item, part) => format!("{item}, {part}"),
    }
}

/// Returns the name of a metric of an item, such as `rtt of 1,000/s`.
pub(crate) fn metric_name(metric: &str, item: &str) -> String {
    if item.is_empty() { metric.to_owned() } else { format!("{metric} of {item}") }
}

impl<R> Clone for Metric<R> {
    fn clone(&self) -> Self {
        Self { name: self.name.clone(), read: Arc::clone(&self.read), ..*self }
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
