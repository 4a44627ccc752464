//! A mix of requests: several kinds of clients at once, as a server on the internet or in a plant
//! has them, each kind with its weight.

use std::iter;
use std::net::IpAddr;
use std::sync::Arc;

use thiserror::Error;

use crate::nts::{NtsOptions, Sessions};
use crate::options::{Job, LoadOptions};
use crate::ptp::PtpPlan;
use crate::tail::Additions;
use crate::target::TargetName;

/// The most kinds of requests in a mix.
pub const PARTS_MAX: usize = 8;

/// One kind of requests.
#[derive(Clone, Debug)]
pub struct Part {
    /// What it is called in the result.
    pub name: String,
    /// How much of the rate it has, in proportion to the others' weights.
    pub weight: f64,
    /// What its clients ask.
    pub asks: Asks,
}

/// What clients ask.
#[derive(Clone, Debug)]
pub enum Asks {
    /// For NTP.
    Ntp(NtpAsks),
    /// For PTP.
    Ptp(PtpPlan),
}

/// What clients of NTP ask: in basic mode and version 4 by default.
#[derive(Clone, Debug)]
pub struct NtpAsks {
    /// 1 to 4.
    pub version: u8,
    /// In interleaved mode.
    pub interleaved: bool,
    /// Authenticated by NTS.
    pub nts: Option<NtsOptions>,
    /// The same by sessions that are there already.
    pub sessions: Option<Arc<Sessions>>,
    /// What is behind the header.
    pub additions: Additions,
}

impl Default for NtpAsks {
    fn default() -> Self {
        let (nts, sessions, additions) = (None, None, Additions::default());
        Self { version: 4, interleaved: false, nts, sessions, additions }
    }
}

/// Why kinds of requests do not go together; one line for the user.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum MixError {
    /// No mix, or too many kinds.
    #[error("a mix has 2 to {PARTS_MAX} kinds of requests, not {0}")]
    Parts(usize),
    /// A weight that is no number above 0.
    #[error("the weight of '{name}' must be a number above 0, not {weight}")]
    Weight {
        /// The part.
        name: String,
        /// What was given.
        weight: f64,
    },
    /// A kind that is there twice.
    #[error("'{0}' is there twice in the mix; give it one weight")]
    Twice(String),
    /// Fewer clients or threads than kinds.
    #[error("a mix of {parts} kinds of requests takes at least as many clients, not {clients}")]
    Clients {
        /// Kinds.
        parts: usize,
        /// Clients asked for.
        clients: u32,
    },
    /// Something that a mix does not have.
    #[error("{0}")]
    Without(&'static str),
}

/// Each part's share of the whole, from 0 to 1.
#[must_use]
pub fn shares(parts: &[Part]) -> Vec<f64> {
    let total: f64 = parts.iter().map(|part| part.weight).sum();
    parts.iter().map(|part| part.weight / total).collect()
}

/// Divides `total` things by shares that add up to 1, none without any: where there are fewer
/// things than shares, more are given than there are.
#[must_use]
pub fn divide(total: u32, shares: &[f64]) -> Vec<u32> {
    let of = |share: f64| (f64::from(total) * share) as u32;
    let mut parts: Vec<_> = shares.iter().map(|&share| of(share).max(1)).collect();
    // What rounding left over goes to those that are furthest below their share.
    let left = total.saturating_sub(parts.iter().sum());
    for _ in 0..left {
        let below = |index: usize| f64::from(total) * shares[index] - f64::from(parts[index]);
        let most = (0..parts.len()).rev().max_by(|&a, &b| below(a).total_cmp(&below(b)));
        if let Some(index) = most {
            parts[index] += 1;
        }
    }
    parts
}

/// Refuses kinds of requests that do not go together.
pub(crate) fn check(options: &LoadOptions) -> Result<(), MixError> {
    let parts = &options.mix;
    if !(2..=PARTS_MAX).contains(&parts.len()) {
        return Err(MixError::Parts(parts.len()));
    }
    for (index, Part { name, weight, .. }) in parts.iter().enumerate() {
        if !(*weight > 0.0 && weight.is_finite()) {
            return Err(MixError::Weight { name: name.clone(), weight: *weight });
        }
        if parts[..index].iter().any(|before| before.name == *name) {
            return Err(MixError::Twice(name.clone()));
        }
    }
    if let Some(clients) = options.clients.filter(|&clients| (clients as usize) < parts.len()) {
        return Err(MixError::Clients { parts: parts.len(), clients });
    }
    let ptp = parts.iter().filter_map(|part| match &part.asks {
        Asks::Ptp(plan) => Some(plan),
        Asks::Ntp(_) => None,
    });
    let multicast = ptp.clone().any(|plan| plan.multicast);
    let without = if options.echo {
        "a reflector sends back whatever it is sent; it needs no mix"
    } else if options.well_behaved.is_some() {
        "well-behaved clients go beside one kind of requests; leave them out of a mix"
    } else if options.capture.is_some() {
        "--pcap samples by one kind of requests; capture a run of one kind"
    } else if multicast && ptp.count() > 1 {
        "answers to a group tell nothing of which kind of request they are for; leave out multicast"
    } else {
        return Ok(());
    };
    Err(MixError::Without(without))
}

/// The runs of which the mix is made, without what a run has but once. Offsets are taken of the
/// kinds that tell of a transmission.
pub(crate) fn runs(options: &LoadOptions, address: IpAddr) -> Vec<LoadOptions> {
    let shares = shares(&options.mix);
    let clients = options.clients.map(|clients| divide(clients, &shares));
    let clients = clients.map_or_else(
        || iter::repeat_n(None, shares.len()).collect::<Vec<_>>(),
        |clients| clients.into_iter().map(Some).collect(),
    );
    let parts = options.mix.iter().zip(shares).zip(clients);
    let run = |((part, share), clients)| {
        let job = options.job.scaled(share);
        let alone = LoadOptions { clients, ..alone(options, address.into(), job) };
        asking(part, options, alone)
    };
    parts.map(run).collect()
}

/// What every part takes over.
fn alone(options: &LoadOptions, target: TargetName, job: Job) -> LoadOptions {
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
        surge: options.surge,
        ..LoadOptions::new(target, job)
    }
}

fn asking(part: &Part, options: &LoadOptions, alone: LoadOptions) -> LoadOptions {
    match part.asks.clone() {
        Asks::Ntp(NtpAsks { version, interleaved, nts, sessions, additions }) => {
            let given = options.target.has_port().then(|| options.target.port());
            let target =
                given.map_or_else(|| alone.target.clone(), |port| alone.target.with_port(port));
            let offset = options.offset;
            LoadOptions { target, version, interleaved, nts, sessions, additions, offset, ..alone }
        }
        Asks::Ptp(plan) => {
            let offset = options.offset.filter(|_| plan.tells_of_transmission());
            LoadOptions { ptp: Some(plan), offset, ..alone }
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
            // Those that got one though their share is less stay above it.
            prop_assert!(given >= total && given < total + count, "{given} of {total}");
            for (part, share) in parts.iter().zip(&shares) {
                let exact = f64::from(total) * share;
                prop_assert!((f64::from(*part) - exact).abs() < f64::from(count).max(1.0) + 1.0);
            }
        }
    }

    #[test]
    fn fewer_than_there_are_parts_are_given_to_all() {
        assert_eq!(divide(2, &[0.5, 0.3, 0.2]), [1, 1, 1]);
        assert_eq!(divide(10, &[0.5, 0.25, 0.25]), [5, 3, 2]);
        assert_eq!(divide(100, &[0.98, 0.01, 0.01]), [98, 1, 1]);
    }
}
