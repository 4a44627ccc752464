//! Mix of requests: several kinds of requests in one load, each with its weight.

use std::iter;
use std::net::SocketAddr;
use std::sync::Arc;

use thiserror::Error;

use crate::nts::{NtsOptions, NtsSessions};
use crate::options::{LoadOptions, LoadProcedure};
use crate::ptp::PtpRequestOptions;
use crate::target::TargetName;
use crate::trailer::TrailerOptions;

/// Most kinds of requests in a mix.
pub const PARTS_MAX: usize = 8;

/// One kind of requests in a mix, with its weight.
#[derive(Clone, Debug)]
pub struct MixPart {
    /// Name in the result.
    pub name: String,
    /// Weight: the part's share of the rate is its weight over the sum of all weights.
    pub weight: f64,
    /// Requests of its clients.
    pub request_kind: RequestKind,
}

/// Protocol and options of the requests of one part of a mix.
#[derive(Clone, Debug)]
pub enum RequestKind {
    /// NTP requests.
    Ntp(NtpRequestOptions),
    /// PTP requests.
    Ptp(PtpRequestOptions),
}

/// NTP requests: basic mode and version 4 by default.
#[derive(Clone, Debug)]
pub struct NtpRequestOptions {
    /// NTP version, 1 to 4.
    pub version: u8,
    /// True for interleaved mode (RFC 9769).
    pub interleaved: bool,
    /// NTS authentication with new sessions; `None` without.
    pub nts: Option<NtsOptions>,
    /// NTS authentication by existing sessions.
    pub sessions: Option<Arc<NtsSessions>>,
    /// Trailer after the header.
    pub trailer: TrailerOptions,
}

impl Default for NtpRequestOptions {
    fn default() -> Self {
        let (nts, sessions, trailer) = (None, None, TrailerOptions::default());
        Self { version: 4, interleaved: false, nts, sessions, trailer }
    }
}

/// Reason for which kinds of requests cannot be combined; one line for the user.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum MixError {
    /// No mix, or too many kinds.
    #[error("a mix has 2 to {PARTS_MAX} kinds of requests, not {0}")]
    Parts(usize),
    /// A weight that is not a number above 0.
    #[error("the weight of '{name}' must be a number above 0, not {weight}")]
    Weight {
        /// Name of the part.
        name: String,
        /// Invalid weight.
        weight: f64,
    },
    /// Two parts with the same name.
    #[error("'{0}' occurs twice in the mix; specify one weight")]
    DuplicateName(String),
    /// Fewer clients than kinds of requests.
    #[error("a mix of {parts} kinds of requests needs at least as many clients, not {clients}")]
    Clients {
        /// Number of kinds.
        parts: usize,
        /// Clients requested.
        clients: u32,
    },
    /// An option that a mix does not support.
    #[error("{0}")]
    UnsupportedOption(&'static str),
}

/// Returns each part's share of the whole, from 0 to 1.
#[must_use]
pub fn shares(parts: &[MixPart]) -> Vec<f64> {
    let total: f64 = parts.iter().map(|part| part.weight).sum();
    parts.iter().map(|part| part.weight / total).collect()
}

/// Divides `total` items by shares that sum to 1. Each share receives at least one item, so the sum
/// can exceed `total` if a share amounts to less than one item.
#[must_use]
pub fn divide(total: u32, shares: &[f64]) -> Vec<u32> {
    let rounded_down = |share: f64| (f64::from(total) * share) as u32;
    let mut parts: Vec<_> = shares.iter().map(|&share| rounded_down(share).max(1)).collect();
    let shortfall = |index: usize, part: u32| f64::from(total) * shares[index] - f64::from(part);
    // The remainder of rounding goes to the parts that are furthest below their share.
    for _ in 0..total.saturating_sub(parts.iter().sum()) {
        let below =
            |&a: &usize, &b: &usize| shortfall(a, parts[a]).total_cmp(&shortfall(b, parts[b]));
        if let Some(index) = (0..parts.len()).rev().max_by(below) {
            parts[index] += 1;
        }
    }
    // What parts with less than one item received comes from those furthest above their share.
    for _ in 0..parts.iter().sum::<u32>().saturating_sub(total) {
        let above =
            |&a: &usize, &b: &usize| shortfall(b, parts[b]).total_cmp(&shortfall(a, parts[a]));
        let donors = (0..parts.len()).filter(|&index| parts[index] > 1);
        if let Some(index) = donors.max_by(above) {
            parts[index] -= 1;
        }
    }
    parts
}

/// Refuses kinds of requests that cannot be combined.
pub(crate) fn check_mix(options: &LoadOptions) -> Result<(), MixError> {
    let parts = &options.mix;
    if !(2..=PARTS_MAX).contains(&parts.len()) {
        return Err(MixError::Parts(parts.len()));
    }
    for (index, MixPart { name, weight, .. }) in parts.iter().enumerate() {
        if !(*weight > 0.0 && weight.is_finite()) {
            return Err(MixError::Weight { name: name.clone(), weight: *weight });
        }
        if parts[..index].iter().any(|before| before.name == *name) {
            return Err(MixError::DuplicateName(name.clone()));
        }
    }
    if let Some(clients) = options.clients.filter(|&clients| (clients as usize) < parts.len()) {
        return Err(MixError::Clients { parts: parts.len(), clients });
    }
    let ptp = parts.iter().filter_map(|part| match &part.request_kind {
        RequestKind::Ptp(plan) => Some(plan),
        RequestKind::Ntp(_) => None,
    });
    let multicast = ptp.clone().any(|plan| plan.multicast);
    let reason = if options.echo {
        "a mix is not supported for a reflector, which echoes every kind of request"
    } else if options.compliant_clients.is_some() {
        "compliant clients do not support a mix; omit one of the two"
    } else if options.capture.is_some() {
        "--pcap does not support a mix; capture a run of one kind of request"
    } else if multicast && ptp.count() > 1 {
        "a mix does not support multicast: replies to a group do not identify the kind of request; \
         omit multicast"
    } else {
        return Ok(());
    };
    Err(MixError::UnsupportedOption(reason))
}

/// Returns the options of each part, without those that apply to the whole run. Offsets are
/// measured for the parts whose replies carry a transmit time.
pub(crate) fn part_runs(options: &LoadOptions, address: SocketAddr) -> Vec<LoadOptions> {
    let shares = shares(&options.mix);
    let clients = options.clients.map(|clients| divide(clients, &shares));
    let clients = clients.map_or_else(
        || iter::repeat_n(None, shares.len()).collect::<Vec<_>>(),
        |clients| clients.into_iter().map(Some).collect(),
    );
    let parts = options.mix.iter().zip(shares).zip(clients);
    let run = |((part, share), clients)| {
        let job = options.job.scaled(share);
        let alone = LoadOptions { clients, ..inherited_options(options, address.into(), job) };
        part_options(part, options, alone)
    };
    parts.map(run).collect()
}

/// Returns the options that every part inherits.
fn inherited_options(options: &LoadOptions, target: TargetName, job: LoadProcedure) -> LoadOptions {
    LoadOptions {
        engine: options.engine,
        source_network: options.source_network,
        threads: options.threads,
        family: options.family,
        hints: options.hints.clone(),
        i_own_this_target: options.i_own_this_target,
        random_sources: options.random_sources,
        spacing: options.spacing,
        reply_timeout: options.reply_timeout,
        fairness: options.fairness,
        overload_test: options.overload_test,
        ..LoadOptions::new(target, job)
    }
}

fn part_options(part: &MixPart, options: &LoadOptions, inherited: LoadOptions) -> LoadOptions {
    match part.request_kind.clone() {
        RequestKind::Ntp(NtpRequestOptions { version, interleaved, nts, sessions, trailer }) => {
            let explicit_port = options.target.has_port().then(|| options.target.port());
            let target = explicit_port
                .map_or_else(|| inherited.target.clone(), |port| inherited.target.with_port(port));
            let offset = options.offset;
            LoadOptions {
                target,
                version,
                interleaved,
                nts,
                sessions,
                trailer,
                offset,
                ..inherited
            }
        }
        RequestKind::Ptp(plan) => {
            let offset = options.offset.filter(|_| plan.reports_transmit_time());
            LoadOptions { ptp: Some(plan), offset, ..inherited }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_divided_adds_up(weights in prop::collection::vec(0.01..100.0, 1..8), total in 8_u32..1_000_000) {
            let sum: f64 = weights.iter().sum();
            let shares: Vec<_> = weights.iter().map(|weight| weight / sum).collect();
            let parts = divide(total, &shares);
            prop_assert!(parts.iter().all(|part| *part >= 1));
            let count = shares.len() as u32;
            let given: u32 = parts.iter().sum();
            // Parts that got one although their share is less stay above it.
            prop_assert!(given >= total && given < total + count, "{given} of {total}");
            for (part, share) in parts.iter().zip(&shares) {
                let exact = f64::from(total) * share;
                prop_assert!((f64::from(*part) - exact).abs() < f64::from(count).max(1.0) + 1.0);
            }
        }
    }

    #[test]
    fn every_part_has_at_least_one() {
        assert_eq!(divide(2, &[0.5, 0.3, 0.2]), [1, 1, 1]);
        assert_eq!(divide(10, &[0.5, 0.25, 0.25]), [5, 3, 2]);
        assert_eq!(divide(100, &[0.98, 0.01, 0.01]), [98, 1, 1]);
        assert_eq!(divide(3, &[0.9, 0.05, 0.05]), [1, 1, 1]);
        assert_eq!(divide(10, &[0.96, 0.02, 0.02]), [8, 1, 1]);
    }
}
