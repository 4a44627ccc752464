//! Mix of requests: the kinds of requests in one load, each with its weight. A run of one kind is a
//! mix of one.

use horolog_record::RequestMode;
use thiserror::Error;

use crate::options::LoadOptions;
use crate::request_kind::{NtpRequestOptions, RequestKind};

/// Most kinds of requests in a mix.
pub const PARTS_MAX: usize = 8;

/// Requests of a run: one kind, or several kinds at once, each with its weight.
#[derive(Clone, Debug)]
pub struct RequestMix(Vec<MixPart>);

/// One kind of requests in a mix, with its weight.
#[derive(Clone, Debug)]
pub struct MixPart {
    /// Name in the result; empty if it is the only kind.
    pub name: String,
    /// Weight: the part's share of the rate is its weight over the sum of all weights.
    pub weight: f64,
    /// Requests of its clients.
    pub request_kind: RequestKind,
}

impl Default for RequestMix {
    fn default() -> Self {
        Self::only(NtpRequestOptions::default())
    }
}

impl RequestMix {
    /// Returns the requests of a run with one kind.
    #[must_use]
    pub fn only(kind: impl Into<RequestKind>) -> Self {
        let (name, request_kind) = (String::new(), kind.into());
        Self(vec![MixPart { name, weight: 1.0, request_kind }])
    }

    /// Returns the requests of a run with several kinds. An error if their number, a name or a
    /// weight is invalid.
    pub fn several(parts: Vec<MixPart>) -> Result<Self, MixError> {
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
        Ok(Self(parts))
    }

    /// Returns the kinds of requests, at least one.
    #[must_use]
    pub fn parts(&self) -> &[MixPart] {
        &self.0
    }

    /// Returns the kinds of requests without names and weights.
    pub fn kinds(&self) -> impl Iterator<Item = &RequestKind> + Clone {
        self.0.iter().map(|part| &part.request_kind)
    }

    /// Returns true if there are several kinds.
    #[must_use]
    pub const fn is_several(&self) -> bool {
        self.0.len() > 1
    }

    /// Returns the mode for the record.
    #[must_use]
    pub fn mode(&self) -> RequestMode {
        match &self.0[..] {
            [only] => only.request_kind.mode(),
            _ => RequestMode::Mix,
        }
    }

    /// Returns each part's share of the whole, from 0 to 1.
    #[must_use]
    pub fn shares(&self) -> Vec<f64> {
        let total: f64 = self.0.iter().map(|part| part.weight).sum();
        self.0.iter().map(|part| part.weight / total).collect()
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

/// Refuses options of the run that several kinds of requests do not support.
pub(crate) fn check_mix(options: &LoadOptions) -> Result<(), MixError> {
    let mix = &options.requests;
    if !mix.is_several() {
        return Ok(());
    }
    let parts = mix.parts().len();
    if let Some(clients) = options.clients.filter(|&clients| (clients as usize) < parts) {
        return Err(MixError::Clients { parts, clients });
    }
    let ptp = mix.kinds().filter_map(RequestKind::ptp);
    let reason = if mix.kinds().any(|kind| kind.mode() == RequestMode::Echo) {
        "a mix is not supported for a reflector, which echoes every kind of request"
    } else if options.compliant_clients.is_some() {
        "compliant clients do not support a mix; omit one of the two"
    } else if options.capture.is_some() {
        "--pcap does not support a mix; capture a run of one kind of request"
    } else if ptp.clone().any(|ptp| ptp.multicast) && ptp.count() > 1 {
        "a mix does not support multicast: replies to a group do not identify the kind of request; \
         omit multicast"
    } else {
        return Ok(());
    };
    Err(MixError::UnsupportedOption(reason))
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
