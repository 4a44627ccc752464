//! What a server is told of rate limits and lists of prefixes, and the rules that this must keep.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::time::Duration;

use horolog_sys::netlink::Prefix;
use horolog_xdp::LIST_PREFIXES_MAX;

use super::ConfigError;

/// Requests per second that a client may be limited to. One in an hour is less than any client
/// asks; above the upper end the interval is shorter than what times are reckoned in.
pub(super) const LIMIT_RATES: RangeInclusive<f64> = 1.0 / 3_600.0..=500_000.0;
/// Requests per second that all newcomers together may be limited to.
pub(super) const NEWCOMER_RATES: RangeInclusive<f64> = 1.0..=100_000_000.0;
/// Requests that a client may have ahead of its rate.
pub(super) const LIMIT_BURSTS: RangeInclusive<u32> = 1..=10_000;
/// How long a client may be silent and keep its place. Words tell times apart up to 104 days.
pub(super) const LIMIT_IDLES: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_hours(30 * 24);
/// In how many days a burst must be saved up, for the same reason.
pub(super) const BURST_DAYS_MAX: f64 = 30.0;
const DAY_S: f64 = 86_400.0;
/// The most clients that are remembered: two gigabytes for limits, four for interleaved mode.
pub(super) const CLIENTS_MAX: usize = 1 << 28;

/// Options for rate limits and lists of prefixes.
#[derive(Clone, PartialEq, Debug)]
pub struct LimitsConfig {
    /// Requests per second of each client; no limit when not given.
    pub rate: Option<f64>,
    /// Requests that a client may send at once before that counts. Clients begin with several: both
    /// ntpd and chronyd send up to eight with `iburst`, so fewer would cut a good client short.
    pub burst: u32,
    /// Requests per second of all clients together that have no place, and as many again of those
    /// that are longer than a header; no limit when not given.
    pub newcomers: Option<f64>,
    /// How long a client must be silent until its place is free for another. It is long, because
    /// clients that behave ask up to every 17 minutes (poll 10) and are not to lose their place to
    /// a flood of newcomers.
    pub idle: Duration,
    /// How many clients there is room for, rounded up to a power of two; 8 bytes each.
    pub clients: usize,
    /// Bits of an IPv4 address that tell one client from another.
    pub ipv4_prefix: u8,
    /// Bits of an IPv6 address that tell one client from another: by default those of a subnet,
    /// because one host has all addresses of its own (RFC 4291, section 2.5.1).
    pub ipv6_prefix: u8,
    /// Prefixes that are served; when there are any, others are not.
    pub allow: Vec<Prefix>,
    /// Prefixes that are not served. The longest prefix of both lists decides.
    pub deny: Vec<Prefix>,
    /// Whether a client that asks too often is told so, once for each request that was answered.
    pub kiss_rate: bool,
    /// Whether clients that the lists deny are told so, at most 1,000 a second.
    pub kiss_deny: bool,
}

impl Default for LimitsConfig {
    /// No limits, no lists.
    fn default() -> Self {
        Self {
            rate: None,
            burst: 8,
            newcomers: None,
            idle: Duration::from_hours(1),
            clients: 1 << 20,
            ipv4_prefix: 32,
            ipv6_prefix: 64,
            allow: Vec::new(),
            deny: Vec::new(),
            kiss_rate: false,
            kiss_deny: false,
        }
    }
}

impl LimitsConfig {
    /// Whether anything is limited or listed at all.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.rate.is_some()
            || self.newcomers.is_some()
            || !self.allow.is_empty()
            || !self.deny.is_empty()
    }

    /// Finds the first rule that the options break.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        if let Some(rate) = self.rate.filter(|rate| !LIMIT_RATES.contains(rate)) {
            return Err(ConfigError::LimitRate(rate));
        }
        if let Some(rate) = self.newcomers.filter(|rate| !NEWCOMER_RATES.contains(rate)) {
            return Err(ConfigError::NewcomerRate(rate));
        }
        if !LIMIT_BURSTS.contains(&self.burst) {
            return Err(ConfigError::LimitBurst(self.burst));
        }
        let (rate, burst) = (self.rate.unwrap_or(f64::INFINITY), self.burst);
        let days = f64::from(burst) / rate / DAY_S;
        if days > BURST_DAYS_MAX {
            return Err(ConfigError::LimitBurstTime { burst, rate, days });
        }
        if !LIMIT_IDLES.contains(&self.idle) {
            return Err(ConfigError::LimitIdle(self.idle));
        }
        if !(1..=CLIENTS_MAX).contains(&self.clients) {
            return Err(ConfigError::LimitClients(self.clients));
        }
        if !(8..=32).contains(&self.ipv4_prefix) || !(16..=128).contains(&self.ipv6_prefix) {
            return Err(ConfigError::LimitPrefix);
        }
        self.check_lists()
    }

    fn check_lists(&self) -> Result<(), ConfigError> {
        let allowed: HashSet<Prefix> = self.allow.iter().map(Prefix::network).collect();
        if let Some(both) = self.deny.iter().find(|deny| allowed.contains(&deny.network())) {
            return Err(ConfigError::ListedTwice(both.to_string()));
        }
        let listed = self.allow.len() + self.deny.len();
        if listed > LIST_PREFIXES_MAX {
            return Err(ConfigError::ListTooLong(listed));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_out_of_range_are_refused_in_one_line() {
        let check = |change: fn(&mut LimitsConfig)| {
            let mut config = LimitsConfig::default();
            change(&mut config);
            config.check()
        };
        assert_eq!(check(|_| ()), Ok(()));
        let changes: [fn(&mut LimitsConfig); 10] = [
            |c| c.rate = Some(0.0),
            |c| c.rate = Some(1e6),
            |c| c.rate = Some(f64::NAN),
            |c| c.newcomers = Some(0.5),
            |c| c.burst = 0,
            |c| c.idle = Duration::ZERO,
            |c| c.clients = 0,
            |c| c.ipv4_prefix = 33,
            |c| c.ipv6_prefix = 0,
            |c| {
                c.allow = vec!["10.0.0.1/8".parse().unwrap()];
                c.deny = vec!["10.0.0.0/8".parse().unwrap()];
            },
        ];
        for change in changes {
            let message = check(change).unwrap_err().to_string();
            assert!(!message.contains('\n') && message.contains("--"), "{message}");
        }
    }

    #[test]
    fn a_burst_that_takes_too_long_to_save_up_is_refused() {
        let check = |rate, burst| {
            LimitsConfig { rate: Some(rate), burst, ..LimitsConfig::default() }.check()
        };
        assert_eq!(check(0.001, 2_500), Ok(()), "29 days");
        assert_eq!(check(1.0 / 3_600.0, 8), Ok(()));
        let message = check(0.001, 10_000).unwrap_err().to_string();
        let expected = "10000 requests at 0.001 in a second take 116 days, and limits look back \
                        for 30; give a higher --limit-rate or a lower --limit-burst";
        assert_eq!(message, expected);
    }
}
