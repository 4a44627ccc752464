//! Limits that a run is held against: a metric, a comparison and a figure, such as `loss>0.1%`. A
//! limit says what must not be; it is broken where it holds. Pure.

use std::str::FromStr;

use horolog_record::{
    Distribution, EstablishmentTrial, LimitResult, LimitUnit, SearchKind, SearchResult,
    SignedDistribution, Trial,
};
use horolog_stats::Histogram;
use thiserror::Error;

/// What a limit may be about, for help texts.
pub const METRICS: &str = "loss, late, duplicate, invalid (shares of the requests sent), hurt \
     (share of the well-behaved clients' requests that were lost), rate (requests sent per second), \
     ndr, pdr (what a search found), p50, p90, p99, p99.9, p99.99, max (round trip), and the same six \
     behind response-, lateness- and offset-";

/// Why a text is no limit.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum LimitError {
    /// Nothing compares.
    #[error("a limit is METRIC>FIGURE or METRIC<FIGURE (also >= and <=), such as loss>0.1%")]
    Shape,
    /// An unknown metric.
    #[error("there is no metric '{}'; there are {METRICS}", .0.escape_debug())]
    Metric(String),
    /// A figure that is no share.
    #[error("'{}' is no share from 0 to 1; write one such as 0.1% or 0.001", .0.escape_debug())]
    Share(String),
    /// A figure that is no time.
    #[error("'{}' is no time; write one with its unit (ns, us, ms, s), such as 200us", .0.escape_debug())]
    Time(String),
    /// A figure that is no rate.
    #[error("'{}' is no rate; write requests per second, such as 950, 45k or 1.2M", .0.escape_debug())]
    Rate(String),
}

/// Requests or replies that are counted as a share of the requests sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Share {
    Loss,
    Late,
    Duplicate,
    Invalid,
    Hurt,
}

/// A distribution of times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Times {
    RoundTrip,
    Response,
    Lateness,
    /// By their magnitude, whichever way they are off.
    Offset,
}

/// A figure of a distribution.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Figure {
    P50,
    P90,
    P99,
    P99_9,
    P99_99,
    Max,
}

/// What a run has to do for a metric to be measured at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wants {
    /// Search.
    Search(SearchKind),
    /// Take offsets of the server's transmit timestamps.
    Offsets,
    /// Let well-behaved clients ask.
    WellBehaved,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Metric {
    Share(Share),
    Time(Times, Figure),
    Rate,
    Search(SearchKind),
}

const SHARES: [(&str, Share); 5] = [
    ("loss", Share::Loss),
    ("late", Share::Late),
    ("duplicate", Share::Duplicate),
    ("invalid", Share::Invalid),
    ("hurt", Share::Hurt),
];

/// Distributions by what stands before the name of a figure; the empty one comes last.
const TIMES: [(&str, Times); 4] = [
    ("response-", Times::Response),
    ("lateness-", Times::Lateness),
    ("offset-", Times::Offset),
    ("", Times::RoundTrip),
];

const FIGURES: [(&str, Figure); 6] = [
    ("p50", Figure::P50),
    ("p90", Figure::P90),
    ("p99", Figure::P99),
    ("p99.9", Figure::P99_9),
    ("p99.99", Figure::P99_99),
    ("max", Figure::Max),
];

fn named<T: Copy>(table: &[(&str, T)], name: &str) -> Option<T> {
    table.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
}

impl Metric {
    fn parse(name: &str) -> Result<Self, LimitError> {
        let time = || {
            let of = |&(prefix, times): &(&str, Times)| {
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

    const fn unit(self) -> LimitUnit {
        match self {
            Self::Share(_) => LimitUnit::Ratio,
            Self::Time(..) => LimitUnit::Ns,
            Self::Rate | Self::Search(_) => LimitUnit::PerSecond,
        }
    }

    /// Reads a figure of this metric's unit.
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
            // A bare number ends in no unit of time, and so is none.
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
enum Comparison {
    Above,
    AtLeast,
    Below,
    AtMost,
}

impl Comparison {
    fn holds(self, value: f64, bound: f64) -> bool {
        match self {
            Self::Above => value > bound,
            Self::AtLeast => value >= bound,
            Self::Below => value < bound,
            Self::AtMost => value <= bound,
        }
    }

    /// Which of two figures is the worse one.
    fn worse(self, one: f64, other: f64) -> f64 {
        match self {
            Self::Above | Self::AtLeast => one.max(other),
            Self::Below | Self::AtMost => one.min(other),
        }
    }
}

/// What must not be measured.
#[derive(Clone, PartialEq, Debug)]
pub struct Limit {
    text: String,
    metric: Metric,
    comparison: Comparison,
    bound: f64,
}

impl FromStr for Limit {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Self, LimitError> {
        let text = text.trim();
        let at = text.find(['<', '>']).ok_or(LimitError::Shape)?;
        let (name, rest) = text.split_at(at);
        let (comparison, figure) = match rest.as_bytes() {
            [b'>', b'=', ..] => (Comparison::AtLeast, &rest[2..]),
            [b'<', b'=', ..] => (Comparison::AtMost, &rest[2..]),
            [b'>', ..] => (Comparison::Above, &rest[1..]),
            _ => (Comparison::Below, &rest[1..]),
        };
        let metric = Metric::parse(name.trim())?;
        let bound = metric.bound(figure.trim())?;
        Ok(Self { text: text.to_owned(), metric, comparison, bound })
    }
}

impl Limit {
    /// The limit as it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// That without which there is no such figure.
    #[must_use]
    pub const fn wants(&self) -> Option<Wants> {
        match self.metric {
            Metric::Search(kind) => Some(Wants::Search(kind)),
            Metric::Time(Times::Offset, _) => Some(Wants::Offsets),
            Metric::Share(Share::Hurt) => Some(Wants::WellBehaved),
            _ => None,
        }
    }

    /// Whether key establishments have such a figure.
    #[must_use]
    pub const fn suits_establishment(&self) -> bool {
        matches!(
            self.metric,
            Metric::Share(Share::Loss)
                | Metric::Rate
                | Metric::Search(_)
                | Metric::Time(Times::RoundTrip, _)
        )
    }

    /// Holds a run against the limit. Every trial counts; in a search, which looks for trials that
    /// fail, those at the rate that it found.
    #[must_use]
    pub fn judge(&self, trials: &[Trial], search: Option<&SearchResult>) -> LimitResult {
        if let Metric::Search(kind) = self.metric {
            return self.result([(None, found(search, kind))]);
        }
        let counts = |trial: &Trial| counts(search, trial.offered_rate);
        let trials = trials.iter().enumerate().filter(|(_, trial)| counts(trial));
        self.result(trials.map(|(index, trial)| (Some(index), self.of_trial(trial))))
    }

    /// The same for key establishments.
    #[must_use]
    pub fn judge_establishments(
        &self,
        trials: &[EstablishmentTrial],
        search: Option<&SearchResult>,
    ) -> LimitResult {
        if let Metric::Search(kind) = self.metric {
            return self.result([(None, found(search, kind))]);
        }
        let of = |trial: &EstablishmentTrial| match self.metric {
            Metric::Share(Share::Loss) => share(trial.lost, trial.sent),
            Metric::Rate => Some(trial.achieved_rate),
            Metric::Time(Times::RoundTrip, figure) => time(trial.handshake_ns.as_ref(), figure),
            _ => None,
        };
        let counts =
            |trial: &EstablishmentTrial| trial.offered_rate.is_none_or(|rate| counts(search, rate));
        let trials = trials.iter().enumerate().filter(|(_, trial)| counts(trial));
        self.result(trials.map(|(index, trial)| (Some(index), of(trial))))
    }

    fn of_trial(&self, trial: &Trial) -> Option<f64> {
        match self.metric {
            Metric::Share(Share::Loss) => share(trial.lost, trial.sent),
            Metric::Share(Share::Late) => share(trial.late, trial.sent),
            Metric::Share(Share::Duplicate) => share(trial.duplicate, trial.sent),
            Metric::Share(Share::Invalid) => share(trial.invalid_total(), trial.sent),
            Metric::Share(Share::Hurt) => {
                trial.well_behaved.as_ref().and_then(|one| share(one.lost, one.sent))
            }
            Metric::Time(Times::RoundTrip, figure) => time(trial.rtt_ns.as_ref(), figure),
            Metric::Time(Times::Response, figure) => time(trial.response_time_ns.as_ref(), figure),
            Metric::Time(Times::Lateness, figure) => time(trial.lateness_ns.as_ref(), figure),
            Metric::Time(Times::Offset, figure) => magnitude(trial.tx_offset_ns.as_ref(), figure),
            Metric::Rate => Some(trial.achieved_rate),
            Metric::Search(_) => None,
        }
    }

    /// The worst of some figures held against the limit; one that is missing is worse than any.
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
            of: None,
            failed: value.is_none_or(|value| self.comparison.holds(value, self.bound)),
        }
    }
}

/// The rate that a search of this kind found.
fn found(search: Option<&SearchResult>, kind: SearchKind) -> Option<f64> {
    search.filter(|search| search.kind == kind).map(|search| search.rate)
}

/// Whether a trial at this rate is judged: all are, and of a search those at the rate found.
fn counts(search: Option<&SearchResult>, rate: f64) -> bool {
    let lower = search.and_then(|search| search.lower);
    lower.is_none_or(|lower| (rate - lower).abs() <= lower * 1e-6)
}

fn share(part: u64, sent: u64) -> Option<f64> {
    (sent > 0).then(|| part as f64 / sent as f64)
}

fn time(distribution: Option<&Distribution>, figure: Figure) -> Option<f64> {
    let distribution = distribution?;
    let ns = match figure {
        Figure::P50 => distribution.p50,
        Figure::P90 => distribution.p90,
        Figure::P99 => distribution.p99,
        Figure::P99_9 => distribution.p99_9,
        Figure::P99_99 => distribution.p99_99,
        Figure::Max => distribution.max,
    };
    Some(ns as f64)
}

/// A figure of the magnitudes. Of both histograms together, since the percentiles in the record are
/// of the values with their sign.
fn magnitude(offsets: Option<&SignedDistribution>, figure: Figure) -> Option<f64> {
    let offsets = offsets?;
    let quantile = match figure {
        Figure::P50 => 0.5,
        Figure::P90 => 0.9,
        Figure::P99 => 0.99,
        Figure::P99_9 => 0.999,
        Figure::P99_99 => 0.9999,
        Figure::Max => {
            return Some(offsets.min.unsigned_abs().max(offsets.max.unsigned_abs()) as f64);
        }
    };
    let mut magnitudes = Histogram::decode(&offsets.histogram).ok()?;
    magnitudes.merge(&Histogram::decode(&offsets.histogram_negative).ok()?).ok()?;
    magnitudes.value_at_quantile(quantile).map(|ns| ns as f64)
}

#[cfg(test)]
mod tests;
