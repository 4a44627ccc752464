//! Limits of a run: a metric, a comparison and a bound, such as `loss>0.1%`. The expression
//! describes the unwanted condition: the limit fails if it is true. Pure.

use std::str::FromStr;

use horolog_record::{
    Distribution, LimitResult, LimitUnit, NtsKeTrial, SearchKind, SearchResult, SignedDistribution,
    Trial,
};
use horolog_stats::Histogram;
use thiserror::Error;

/// Metrics of a limit, for help texts.
pub const METRICS: &str = "loss, late, duplicate, invalid, unsynchronised (shares of the requests \
                           sent), compliant-loss (share of compliant clients' requests lost), \
                           rate (requests sent per second), ndr, pdr (search results), p50, p90, \
                           p99, p99.9, p99.99, max (round trip), and the same six with the prefix \
                           response-, lateness- or offset-";

/// Reason for which a text is not a limit.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum LimitError {
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
    /// A bound that is not a share.
    #[error("'{}' is not a share from 0 to 1; write one such as 0.1% or 0.001", .0.escape_debug())]
    Share(String),
    /// A bound that is not a time.
    #[error("'{}' is not a time; write one with its unit (ns, us, ms, s), such as \
             200us", .0.escape_debug())]
    Time(String),
    /// A bound that is not a rate.
    #[error(
        "'{}' is not a rate; write requests per second, such as 950, 45k or 1.2M",
        .0.escape_debug()
    )]
    Rate(String),
}

/// Requests or replies that are counted as a share of the requests sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Share {
    Loss,
    Late,
    Duplicate,
    Invalid,
    Unsynchronised,
    CompliantLoss,
}

/// A distribution of times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TimeDistribution {
    RoundTrip,
    Response,
    Lateness,
    /// Magnitudes of the offsets, without their sign.
    Offset,
}

/// Statistic of a distribution.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Percentile {
    P50,
    P90,
    P99,
    P99_9,
    P99_99,
    Max,
}

/// Feature of a run without which a metric is not measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequiredFeature {
    /// Search of this kind.
    Search(SearchKind),
    /// Measurement of offsets of the server's transmit timestamps.
    Offsets,
    /// Compliant clients.
    WellBehaved,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Metric {
    Share(Share),
    Time(TimeDistribution, Percentile),
    Rate,
    Search(SearchKind),
}

const SHARES: [(&str, Share); 6] = [
    ("loss", Share::Loss),
    ("late", Share::Late),
    ("duplicate", Share::Duplicate),
    ("invalid", Share::Invalid),
    ("unsynchronised", Share::Unsynchronised),
    ("compliant-loss", Share::CompliantLoss),
];

/// Distributions by the prefix of a metric's name; the empty prefix comes last.
const TIMES: [(&str, TimeDistribution); 4] = [
    ("response-", TimeDistribution::Response),
    ("lateness-", TimeDistribution::Lateness),
    ("offset-", TimeDistribution::Offset),
    ("", TimeDistribution::RoundTrip),
];

const FIGURES: [(&str, Percentile); 6] = [
    ("p50", Percentile::P50),
    ("p90", Percentile::P90),
    ("p99", Percentile::P99),
    ("p99.9", Percentile::P99_9),
    ("p99.99", Percentile::P99_99),
    ("max", Percentile::Max),
];

fn named<T: Copy>(table: &[(&str, T)], name: &str) -> Option<T> {
    table.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
}

impl Metric {
    fn parse(name: &str) -> Result<Self, LimitError> {
        let time = || {
            let of = |&(prefix, times): &(&str, TimeDistribution)| {
                Some(Self::Time(times, named(&FIGURES, name.strip_prefix(prefix)?)?))
            };
            TIMES.iter().find_map(of)
        };
        match name {
            "rate" => Some(Self::Rate),
            "ndr" => Some(Self::Search(SearchKind::Ndr)),
            "pdr" => Some(Self::Search(SearchKind::Pdr)),
            name => named(&SHARES, name).map(Self::Share).or_else(time),
        }
        .ok_or_else(|| LimitError::Metric(name.to_owned()))
    }

    const fn applies_to_nts_ke(self) -> bool {
        matches!(
            self,
            Self::Share(Share::Loss)
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

    /// Parses a bound in this metric's unit.
    fn bound(self, text: &str) -> Result<f64, LimitError> {
        let wrong = || match self.unit() {
            LimitUnit::Ratio => LimitError::Share(text.to_owned()),
            LimitUnit::Ns => LimitError::Time(text.to_owned()),
            LimitUnit::PerSecond | LimitUnit::BytesPerSecond | LimitUnit::Factor => {
                LimitError::Rate(text.to_owned())
            }
        };
        let (units, most): (&[(&str, f64)], f64) = match self.unit() {
            LimitUnit::Ratio => (&[("%", 0.01), ("", 1.0)], 1.0),
            // A bare number ends in no unit of time, and so is not a time.
            LimitUnit::Ns => {
                (&[("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)], f64::INFINITY)
            }
            LimitUnit::PerSecond | LimitUnit::BytesPerSecond | LimitUnit::Factor => {
                (&[("k", 1e3), ("M", 1e6), ("", 1.0)], f64::INFINITY)
            }
        };
        let bare = text.strip_suffix("/s").filter(|_| self.unit() == LimitUnit::PerSecond);
        let text_of_rate = bare.unwrap_or(text);
        units
            .iter()
            .find_map(|(unit, factor)| {
                let number: f64 = text_of_rate.strip_suffix(unit)?.trim_end().parse().ok()?;
                let value = number * factor;
                (value >= 0.0 && value.is_finite() && value <= most).then_some(value)
            })
            .ok_or_else(wrong)
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

    /// Returns the worse of two values.
    fn worse(self, one: f64, other: f64) -> f64 {
        match self {
            Self::Above | Self::AtLeast => one.max(other),
            Self::Below | Self::AtMost => one.min(other),
        }
    }
}

/// An unwanted condition.
#[derive(Clone, PartialEq, Debug)]
pub struct LoadLimit {
    text: String,
    metric: Metric,
    comparison: ComparisonOperator,
    bound: f64,
}

impl FromStr for LoadLimit {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Self, LimitError> {
        Self::parse_with(text, Metric::parse)
    }
}

impl LoadLimit {
    fn parse_with(
        text: &str,
        parse_metric: impl FnOnce(&str) -> Result<Metric, LimitError>,
    ) -> Result<Self, LimitError> {
        let text = text.trim();
        let at = text.find(['<', '>']).ok_or(LimitError::Shape)?;
        let (name, rest) = text.split_at(at);
        let (comparison, figure) = match rest.as_bytes() {
            [b'>', b'=', ..] => (ComparisonOperator::AtLeast, &rest[2..]),
            [b'<', b'=', ..] => (ComparisonOperator::AtMost, &rest[2..]),
            [b'>', ..] => (ComparisonOperator::Above, &rest[1..]),
            _ => (ComparisonOperator::Below, &rest[1..]),
        };
        let metric = parse_metric(name.trim())?;
        let bound = metric.bound(figure.trim())?;
        Ok(Self { text: text.to_owned(), metric, comparison, bound })
    }

    /// Parses a limit on a metric of NTS-KE exchanges.
    ///
    /// # Errors
    ///
    /// As for other loads, and if NTS-KE exchanges do not have the metric.
    pub fn parse_for_nts_ke(text: &str) -> Result<Self, LimitError> {
        Self::parse_with(text, |name| {
            let metric = Metric::parse(name).ok().filter(|metric| metric.applies_to_nts_ke());
            metric.ok_or_else(|| LimitError::NtsKeMetric(name.to_owned()))
        })
    }

    /// Returns the limit as it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the feature without which the metric is not measured.
    #[must_use]
    pub const fn wants(&self) -> Option<RequiredFeature> {
        match self.metric {
            Metric::Search(kind) => Some(RequiredFeature::Search(kind)),
            Metric::Time(TimeDistribution::Offset, _) => Some(RequiredFeature::Offsets),
            Metric::Share(Share::CompliantLoss) => Some(RequiredFeature::WellBehaved),
            _ => None,
        }
    }

    /// Evaluates the limit for a run. Every trial counts; of a search, in which trials are expected
    /// to fail, those at the rate that it found.
    #[must_use]
    pub fn judge(&self, trials: &[Trial], search: Option<&SearchResult>) -> LimitResult {
        if let Metric::Search(kind) = self.metric {
            return self.result([(None, found(search, kind))]);
        }
        let counts = |trial: &Trial| counts(search, trial.intended_rate);
        let trials = trials.iter().enumerate().filter(|(_, trial)| counts(trial));
        self.result(trials.map(|(index, trial)| (Some(index), self.of_trial(trial))))
    }

    /// Evaluates the limit for an NTS-KE load.
    #[must_use]
    pub fn judge_nts_ke(
        &self,
        trials: &[NtsKeTrial],
        search: Option<&SearchResult>,
    ) -> LimitResult {
        if let Metric::Search(kind) = self.metric {
            return self.result([(None, found(search, kind))]);
        }
        let of = |trial: &NtsKeTrial| match self.metric {
            Metric::Share(Share::Loss) => share(trial.lost, trial.sent),
            Metric::Rate => Some(trial.achieved_rate),
            Metric::Time(TimeDistribution::RoundTrip, figure) => {
                time(trial.handshake_ns.as_ref(), figure)
            }
            _ => None,
        };
        let counts =
            |trial: &NtsKeTrial| trial.intended_rate.is_none_or(|rate| counts(search, rate));
        let trials = trials.iter().enumerate().filter(|(_, trial)| counts(trial));
        self.result(trials.map(|(index, trial)| (Some(index), of(trial))))
    }

    fn of_trial(&self, trial: &Trial) -> Option<f64> {
        match self.metric {
            Metric::Share(Share::Loss) => share(trial.lost, trial.sent),
            Metric::Share(Share::Late) => share(trial.late, trial.sent),
            Metric::Share(Share::Duplicate) => share(trial.duplicate, trial.sent),
            Metric::Share(Share::Invalid) => share(trial.invalid_total(), trial.sent),
            Metric::Share(Share::Unsynchronised) => share(trial.unsynchronised, trial.sent),
            Metric::Share(Share::CompliantLoss) => {
                trial.compliant_clients.as_ref().and_then(|one| share(one.lost, one.sent))
            }
            Metric::Time(TimeDistribution::RoundTrip, figure) => {
                time(trial.rtt_ns.as_ref(), figure)
            }
            Metric::Time(TimeDistribution::Response, figure) => {
                time(trial.response_time_ns.as_ref(), figure)
            }
            Metric::Time(TimeDistribution::Lateness, figure) => {
                time(trial.lateness_ns.as_ref(), figure)
            }
            Metric::Time(TimeDistribution::Offset, figure) => {
                magnitude(trial.tx_offset_ns.as_ref(), figure)
            }
            Metric::Rate => Some(trial.achieved_rate),
            Metric::Search(_) => None,
        }
    }

    /// Compares the worst of some values with the limit; a missing one is worse than any.
    fn result(
        &self,
        figures: impl IntoIterator<Item = (Option<usize>, Option<f64>)>,
    ) -> LimitResult {
        let worst = figures.into_iter().reduce(|worst, next| match (worst.1, next.1) {
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

/// Returns the rate that a search of this kind found.
fn found(search: Option<&SearchResult>, kind: SearchKind) -> Option<f64> {
    search.filter(|search| search.kind == kind).map(|search| search.rate)
}

/// Returns true if a trial at this rate is evaluated: all are, and of a search those at the rate
/// found.
fn counts(search: Option<&SearchResult>, rate: f64) -> bool {
    let lower = search.and_then(|search| search.lower);
    lower.is_none_or(|lower| (rate - lower).abs() <= lower * 1e-6)
}

fn share(part: u64, sent: u64) -> Option<f64> {
    (sent > 0).then(|| part as f64 / sent as f64)
}

fn time(distribution: Option<&Distribution>, figure: Percentile) -> Option<f64> {
    let distribution = distribution?;
    let ns = match figure {
        Percentile::P50 => distribution.p50,
        Percentile::P90 => distribution.p90,
        Percentile::P99 => distribution.p99,
        Percentile::P99_9 => distribution.p99_9,
        Percentile::P99_99 => distribution.p99_99,
        Percentile::Max => distribution.max,
    };
    Some(ns as f64)
}

/// Returns a statistic of the magnitudes. It covers both histograms together, since the percentiles
/// in the record are of the signed values.
fn magnitude(offsets: Option<&SignedDistribution>, figure: Percentile) -> Option<f64> {
    let offsets = offsets?;
    let quantile = match figure {
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
    magnitudes.merge(&Histogram::decode(&offsets.histogram_negative).ok()?).ok()?;
    magnitudes.value_at_quantile(quantile).map(|ns| ns as f64)
}

#[cfg(test)]
mod tests;
