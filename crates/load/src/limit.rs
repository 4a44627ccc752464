//! Limits of a run: a metric, a comparison and a bound, such as `loss>0.1%`. The expression states
//! the unwanted condition, so a limit fails if it is true. Does no I/O.

use std::str::FromStr;

use horolog_record::{
    CapacitySearchGoal, CapacitySearchResult, Distribution, LimitBoundError, LimitResult,
    LimitUnit, NtsKeTrial, SignedDistribution, Trial,
};
use horolog_stats::Histogram;
use thiserror::Error;

/// Names of all metrics, for help and error messages.
pub const METRICS: &str = "loss, late, duplicate, invalid, unsynchronised (shares of the requests \
                           sent), compliant-loss (share of compliant clients' requests lost), \
                           rate (requests sent per second), ndr, pdr (search results), p50, p90, \
                           p99, p99.9, p99.99, max (round trip), and the same six with the prefix \
                           response-, lateness- or offset-";

/// Reason for which a text is not a limit.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum LoadLimitError {
    /// No comparison operator.
    #[error("expected METRIC>VALUE or METRIC<VALUE (also >= and <=), such as loss>0.1%")]
    Shape,
    /// An unknown metric.
    #[error("unknown metric '{}'; choose one of {METRICS}", .0.escape_debug())]
    Metric(String),
    /// A metric that NTS-KE exchanges do not have.
    #[error(
        "'{}' is not a metric of NTS-KE exchanges; choose one of loss, rate, ndr, pdr, p50, p90, \
         p99, p99.9, p99.99, max",
        .0.escape_debug()
    )]
    NtsKeMetric(String),
    /// An invalid bound.
    #[error(transparent)]
    Bound(#[from] LimitBoundError),
}

/// Requests or replies that are counted as a share of the requests sent; for `CompliantLoss`, of
/// those that the compliant clients sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ShareMetric {
    Loss,
    Late,
    Duplicate,
    Invalid,
    Unsynchronised,
    CompliantLoss,
}

/// Distribution that a metric is taken from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TimeDistribution {
    RoundTrip,
    Response,
    Lateness,
    /// Magnitudes of the offsets.
    Offset,
}

/// Percentile or maximum of a distribution.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Percentile {
    P50,
    P90,
    P99,
    P99_9,
    P99_99,
    Max,
}

/// Feature that a run needs for a metric to be measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetricPrerequisite {
    /// Search of this kind.
    Search(CapacitySearchGoal),
    /// Measurement of offsets of the server's transmit timestamps.
    Offsets,
    /// Compliant clients.
    CompliantClients,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LoadMetric {
    Share(ShareMetric),
    Time(TimeDistribution, Percentile),
    Rate,
    Search(CapacitySearchGoal),
}

const SHARE_METRICS: [(&str, ShareMetric); 6] = [
    ("loss", ShareMetric::Loss),
    ("late", ShareMetric::Late),
    ("duplicate", ShareMetric::Duplicate),
    ("invalid", ShareMetric::Invalid),
    ("unsynchronised", ShareMetric::Unsynchronised),
    ("compliant-loss", ShareMetric::CompliantLoss),
];

/// Distributions by the prefix of a metric's name. The empty prefix is last, because it matches
/// every name.
const TIME_PREFIXES: [(&str, TimeDistribution); 4] = [
    ("response-", TimeDistribution::Response),
    ("lateness-", TimeDistribution::Lateness),
    ("offset-", TimeDistribution::Offset),
    ("", TimeDistribution::RoundTrip),
];

const PERCENTILES: [(&str, Percentile); 6] = [
    ("p50", Percentile::P50),
    ("p90", Percentile::P90),
    ("p99", Percentile::P99),
    ("p99.9", Percentile::P99_9),
    ("p99.99", Percentile::P99_99),
    ("max", Percentile::Max),
];

fn find_by_name<T: Copy>(table: &[(&str, T)], name: &str) -> Option<T> {
    table.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
}

impl LoadMetric {
    fn parse(name: &str) -> Result<Self, LoadLimitError> {
        let time = || {
            let time_metric = |&(prefix, times): &(&str, TimeDistribution)| {
                Some(Self::Time(times, find_by_name(&PERCENTILES, name.strip_prefix(prefix)?)?))
            };
            TIME_PREFIXES.iter().find_map(time_metric)
        };
        match name {
            "rate" => Some(Self::Rate),
            "ndr" => Some(Self::Search(CapacitySearchGoal::Ndr)),
            "pdr" => Some(Self::Search(CapacitySearchGoal::Pdr)),
            name => find_by_name(&SHARE_METRICS, name).map(Self::Share).or_else(time),
        }
        .ok_or_else(|| LoadLimitError::Metric(name.to_owned()))
    }

    const fn applies_to_nts_ke(self) -> bool {
        matches!(
            self,
            Self::Share(ShareMetric::Loss)
                | Self::Rate
                | Self::Search(_)
                | Self::Time(TimeDistribution::RoundTrip, _)
        )
    }

    const fn unit(self) -> LimitUnit {
        match self {
            Self::Share(_) => LimitUnit::Ratio,
            Self::Time(..) => LimitUnit::Ns,
            Self::Rate | Self::Search(_) => LimitUnit::PerSecond,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ComparisonOperator {
    Above,
    AtLeast,
    Below,
    AtMost,
}

impl ComparisonOperator {
    fn holds(self, value: f64, bound: f64) -> bool {
        match self {
            Self::Above => value > bound,
            Self::AtLeast => value >= bound,
            Self::Below => value < bound,
            Self::AtMost => value <= bound,
        }
    }

    /// Returns the value that is worse for this comparison.
    fn worse(self, one: f64, other: f64) -> f64 {
        match self {
            Self::Above | Self::AtLeast => one.max(other),
            Self::Below | Self::AtMost => one.min(other),
        }
    }
}

/// Limit of a load: an unwanted condition on a metric.
#[derive(Clone, PartialEq, Debug)]
pub struct LoadMetricLimit {
    text: String,
    metric: LoadMetric,
    comparison: ComparisonOperator,
    bound: f64,
}

impl FromStr for LoadMetricLimit {
    type Err = LoadLimitError;

    fn from_str(text: &str) -> Result<Self, LoadLimitError> {
        Self::parse_with(text, LoadMetric::parse)
    }
}

impl LoadMetricLimit {
    fn parse_with(
        text: &str,
        parse_metric: impl FnOnce(&str) -> Result<LoadMetric, LoadLimitError>,
    ) -> Result<Self, LoadLimitError> {
        let text = text.trim();
        let at = text.find(['<', '>']).ok_or(LoadLimitError::Shape)?;
        let (name, rest) = text.split_at(at);
        let (comparison, bound_text) = match rest.as_bytes() {
            [b'>', b'=', ..] => (ComparisonOperator::AtLeast, &rest[2..]),
            [b'<', b'=', ..] => (ComparisonOperator::AtMost, &rest[2..]),
            [b'>', ..] => (ComparisonOperator::Above, &rest[1..]),
            _ => (ComparisonOperator::Below, &rest[1..]),
        };
        let name = name.trim();
        let metric = parse_metric(name)?;
        let bound = metric.unit().parse_bound(name, bound_text.trim())?;
        Ok(Self { text: text.to_owned(), metric, comparison, bound })
    }

    /// Parses a limit on a metric of NTS-KE exchanges.
    ///
    /// # Errors
    ///
    /// As for other loads, and if NTS-KE exchanges do not have the metric.
    pub fn parse_for_nts_ke(text: &str) -> Result<Self, LoadLimitError> {
        Self::parse_with(text, |name| {
            let metric = LoadMetric::parse(name).ok().filter(|metric| metric.applies_to_nts_ke());
            metric.ok_or_else(|| LoadLimitError::NtsKeMetric(name.to_owned()))
        })
    }

    /// Returns the expression as the user wrote it.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the feature that the run needs for the metric to be measured; `None` if every run
    /// measures it.
    #[must_use]
    pub const fn required_feature(&self) -> Option<MetricPrerequisite> {
        match self.metric {
            LoadMetric::Search(kind) => Some(MetricPrerequisite::Search(kind)),
            LoadMetric::Time(TimeDistribution::Offset, _) => Some(MetricPrerequisite::Offsets),
            LoadMetric::Share(ShareMetric::CompliantLoss) => {
                Some(MetricPrerequisite::CompliantClients)
            }
            _ => None,
        }
    }

    /// Evaluates the limit for a run, over all trials. In a search, whose trials may exceed the
    /// loss goal, only the trials at the rate found count, if it found one. The limit fails if
    /// nothing was measured.
    #[must_use]
    pub fn evaluate(&self, trials: &[Trial], search: Option<&CapacitySearchResult>) -> LimitResult {
        if let LoadMetric::Search(kind) = self.metric {
            return self.compare_worst([(None, search_rate(search, kind))]);
        }
        let counts = |trial: &Trial| is_evaluated(search, trial.intended_rate);
        let trials = trials.iter().enumerate().filter(|(_, trial)| counts(trial));
        self.compare_worst(trials.map(|(index, trial)| (Some(index), self.trial_value(trial))))
    }

    /// Evaluates the limit for an NTS-KE load, as [`LoadMetricLimit::evaluate`]; the round trip is
    /// the handshake.
    #[must_use]
    pub fn evaluate_nts_ke(
        &self,
        trials: &[NtsKeTrial],
        search: Option<&CapacitySearchResult>,
    ) -> LimitResult {
        if let LoadMetric::Search(kind) = self.metric {
            return self.compare_worst([(None, search_rate(search, kind))]);
        }
        let value_of = |trial: &NtsKeTrial| match self.metric {
            LoadMetric::Share(ShareMetric::Loss) => share_of_sent(trial.lost, trial.sent),
            LoadMetric::Rate => Some(trial.achieved_rate),
            LoadMetric::Time(TimeDistribution::RoundTrip, percentile) => {
                time_percentile(trial.handshake_ns.as_ref(), percentile)
            }
            _ => None,
        };
        let counts =
            |trial: &NtsKeTrial| trial.intended_rate.is_none_or(|rate| is_evaluated(search, rate));
        let trials = trials.iter().enumerate().filter(|(_, trial)| counts(trial));
        self.compare_worst(trials.map(|(index, trial)| (Some(index), value_of(trial))))
    }

    fn trial_value(&self, trial: &Trial) -> Option<f64> {
        match self.metric {
            LoadMetric::Share(ShareMetric::Loss) => share_of_sent(trial.lost, trial.sent),
            LoadMetric::Share(ShareMetric::Late) => share_of_sent(trial.late, trial.sent),
            LoadMetric::Share(ShareMetric::Duplicate) => share_of_sent(trial.duplicate, trial.sent),
            LoadMetric::Share(ShareMetric::Invalid) => {
                share_of_sent(trial.invalid_total(), trial.sent)
            }
            LoadMetric::Share(ShareMetric::Unsynchronised) => {
                share_of_sent(trial.unsynchronised, trial.sent)
            }
            LoadMetric::Share(ShareMetric::CompliantLoss) => {
                trial.compliant_clients.as_ref().and_then(|one| share_of_sent(one.lost, one.sent))
            }
            LoadMetric::Time(TimeDistribution::RoundTrip, percentile) => {
                time_percentile(trial.rtt_ns.as_ref(), percentile)
            }
            LoadMetric::Time(TimeDistribution::Response, percentile) => {
                time_percentile(trial.response_time_ns.as_ref(), percentile)
            }
            LoadMetric::Time(TimeDistribution::Lateness, percentile) => {
                time_percentile(trial.lateness_ns.as_ref(), percentile)
            }
            LoadMetric::Time(TimeDistribution::Offset, percentile) => {
                magnitude_percentile(trial.tx_offset_ns.as_ref(), percentile)
            }
            LoadMetric::Rate => Some(trial.achieved_rate),
            LoadMetric::Search(_) => None,
        }
    }

    /// Compares the worst of the values with the bound. A missing value is worse than any other and
    /// fails the limit; so does the lack of any value.
    fn compare_worst(
        &self,
        values: impl IntoIterator<Item = (Option<usize>, Option<f64>)>,
    ) -> LimitResult {
        let worst = values.into_iter().reduce(|worst, next| match (worst.1, next.1) {
            (Some(value), Some(other)) if self.comparison.worse(value, other) > value => next,
            (Some(value), Some(other)) if self.comparison.worse(value, other) < value => next,
            (Some(_), None) => next,
            _ => worst,
        });
        let (trial, value) = worst.unwrap_or((None, None));
        LimitResult {
            expression: self.text.clone(),
            unit: self.metric.unit(),
            bound: self.bound,
            value,
            trial,
            scope: None,
            failed: value.is_none_or(|value| self.comparison.holds(value, self.bound)),
        }
    }
}

/// Returns the rate found by a search of this kind; `None` without such a search.
fn search_rate(search: Option<&CapacitySearchResult>, kind: CapacitySearchGoal) -> Option<f64> {
    search.filter(|search| search.kind == kind).map(|search| search.rate)
}

/// Returns true if trials at this rate are evaluated. In a search that found a rate, only those at
/// that rate are.
fn is_evaluated(search: Option<&CapacitySearchResult>, rate: f64) -> bool {
    let lower = search.and_then(|search| search.lower);
    lower.is_none_or(|lower| (rate - lower).abs() <= lower * 1e-6)
}

fn share_of_sent(part: u64, sent: u64) -> Option<f64> {
    (sent > 0).then(|| part as f64 / sent as f64)
}

fn time_percentile(distribution: Option<&Distribution>, percentile: Percentile) -> Option<f64> {
    let distribution = distribution?;
    let ns = match percentile {
        Percentile::P50 => distribution.p50,
        Percentile::P90 => distribution.p90,
        Percentile::P99 => distribution.p99,
        Percentile::P99_9 => distribution.p99_9,
        Percentile::P99_99 => distribution.p99_99,
        Percentile::Max => distribution.max,
    };
    Some(ns as f64)
}

/// Returns a percentile of the offsets' magnitudes, in ns, from the histograms of both signs. The
/// percentiles in the record cannot be used, because they are of signed values.
fn magnitude_percentile(
    offsets: Option<&SignedDistribution>,
    percentile: Percentile,
) -> Option<f64> {
    let offsets = offsets?;
    let quantile = match percentile {
        Percentile::P50 => 0.5,
        Percentile::P90 => 0.9,
        Percentile::P99 => 0.99,
        Percentile::P99_9 => 0.999,
        Percentile::P99_99 => 0.9999,
        Percentile::Max => {
            return Some(offsets.min.unsigned_abs().max(offsets.max.unsigned_abs()) as f64);
        }
    };
    let mut magnitudes = Histogram::decode(&offsets.histogram).ok()?;
    magnitudes.try_merge(&Histogram::decode(&offsets.histogram_negative).ok()?).ok()?;
    magnitudes.value_at_quantile(quantile).map(|ns| ns as f64)
}

#[cfg(test)]
mod tests;
