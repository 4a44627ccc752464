//! Conversion of the configured rates and times to the integers with which both engines calculate.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use horolog_time::NS_PER_S;
use horolog_wire::prefix::Prefix;
use horolog_xdp::{LimitRules, LimitTableSettings, ListedPrefix, ResponderSettings};

use super::{UNIT_SHIFT, WAYS};
use crate::config::{InterleavedConfig, LimitsConfig};
use crate::reply::address_hash::{AddressHashKey, address_words};

/// GCRA tolerance for new clients: the burst of one second at their rate.
const NEW_CLIENT_TOLERANCE: Duration = Duration::from_secs(1);
/// Maximum rate of DENY kisses in total, per second.
const DENY_KISSES_PER_S: f64 = 1_000.0;

impl LimitsConfig {
    /// Returns the rules for clients in the integer units of both engines, with epoch 0; the caller
    /// sets the epoch.
    #[must_use]
    pub fn rules(&self) -> LimitRules {
        let interval = self.rate.map_or(0, |rate| (ns_per_request(rate) >> UNIT_SHIFT).max(1));
        LimitRules {
            interval,
            tolerance: interval * u64::from(self.burst.saturating_sub(1)),
            idle: self.idle.as_nanos() as u64 >> UNIT_SHIFT,
            new_client_interval_ns: self.new_client_rate.map_or(0, ns_per_request),
            new_client_tolerance_ns: NEW_CLIENT_TOLERANCE.as_nanos() as u64,
            deny_interval_ns: if self.kiss_deny { ns_per_request(DENY_KISSES_PER_S) } else { 0 },
            epoch: 0,
            kiss_rate: self.kiss_rate.into(),
            lists: u8::from(!(self.allow.is_empty() && self.deny.is_empty())),
            others_denied: u8::from(!self.allow.is_empty()),
            lists_are_finer: self.lists_are_finer().into(),
        }
    }

    /// Returns the table size and the address masks, which stay constant while a server runs.
    #[must_use]
    pub fn settings(&self) -> LimitTableSettings {
        let ipv4 = Prefix::new(Ipv4Addr::BROADCAST.into(), self.ipv4_prefix);
        let ipv6 = Prefix::new(Ipv6Addr::from_bits(u128::MAX).into(), self.ipv6_prefix);
        // The configuration check rejects lengths that are too long; here they count as the full
        // length.
        let mask = |prefix: Result<Prefix, _>, all: IpAddr| {
            address_words(prefix.map_or(all, |prefix| prefix.network().address()))
        };
        let [_, ipv4_mask] = mask(ipv4, Ipv4Addr::BROADCAST.into());
        let ipv6_mask = mask(ipv6, Ipv6Addr::from_bits(u128::MAX).into());
        let sets = self.clients.div_ceil(WAYS).max(1).next_power_of_two();
        LimitTableSettings { sets: u32::try_from(sets).unwrap_or(1 << 31), ipv4_mask, ipv6_mask }
    }

    /// Returns the listed prefixes in the form of the BPF program.
    #[must_use]
    pub fn listed_prefixes(&self) -> Vec<ListedPrefix> {
        let to_listed = |denied| {
            move |prefix: &Prefix| ListedPrefix {
                address: prefix.network().address(),
                length: prefix.length(),
                denied,
            }
        };
        self.allow
            .iter()
            .map(to_listed(false))
            .chain(self.deny.iter().map(to_listed(true)))
            .collect()
    }

    fn lists_are_finer(&self) -> bool {
        self.allow.iter().chain(&self.deny).any(|prefix| {
            let client =
                if prefix.address().is_ipv4() { self.ipv4_prefix } else { self.ipv6_prefix };
            prefix.length() > client
        })
    }
}

/// Returns the settings for loading the XDP program, without redirection to `AF_XDP` sockets and
/// NetSync Monitor.
#[must_use]
pub fn responder_settings(
    key: AddressHashKey,
    limits: &LimitsConfig,
    interleaved: &InterleavedConfig,
) -> ResponderSettings {
    let slots = match interleaved.clients {
        0 => 0,
        clients => u32::try_from(clients.next_power_of_two()).unwrap_or(1 << 31),
    };
    ResponderSettings {
        key: key.0,
        interleaved_slots: slots,
        limits: limits.is_on().then(|| limits.settings()),
        af_xdp_queues: 0,
        ptp_monitor: false,
    }
}

fn ns_per_request(rate: f64) -> u64 {
    ((NS_PER_S as f64 / rate) as u64).max(1)
}
