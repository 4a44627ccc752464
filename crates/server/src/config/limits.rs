//! Options for rate limits and lists of prefixes, and their rules.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::time::Duration;

use horolog_wire::prefix::Prefix;
use horolog_xdp::LIST_PREFIXES_MAX;

use super::ConfigError;

/// Range of the rate limit per client, in requests per second. One request per hour is below the
/// rate of any client; above the upper limit, the interval would approach the limiter's resolution
/// of 1.024 µs.
pub(super) const LIMIT_RATES: RangeInclusive<f64> = 1.0 / 3_600.0..=500_000.0;
/// Range of the rate limit for all new clients together, in requests per second.
pub(super) const NEW_CLIENT_RATES: RangeInclusive<f64> = 1.0..=100_000_000.0;
/// Range of the burst: requests that a client may send at once.
pub(super) const LIMIT_BURSTS: RangeInclusive<u32> = 1..=10_000;
/// Range of the idle time after which another client may take a client's slot. The limiter's stored
/// times are unambiguous up to 104 days.
pub(super) const LIMIT_IDLES: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_hours(30 * 24);
/// Longest time in which a burst may accumulate, in days: the limiter's stored times are
/// unambiguous up to 104 days.
pub(super) const BURST_DAYS_MAX: f64 = 30.0;
const DAY_S: f64 = 86_400.0;
/// Maximum number of stored clients: they take 2 GB for limits, and 4 GB for interleaved mode.
pub(super) const CLIENTS_MAX: usize = 1 << 28;

/// Options for rate limits and lists of prefixes.
#[derive(Clone, PartialEq, Debug)]
pub struct LimitsConfig {
    /// Requests per second per client; unlimited by default.
    pub rate: Option<f64>,
    /// Burst: requests that a client may send at once. Both ntpd and chronyd start with up to eight
    /// requests (`iburst`), so a smaller burst would limit compliant clients.
    pub burst: u32,
    /// Requests per second of all new clients together. Requests longer than a header have a
    /// separate bucket of the same rate. Unlimited by default.
    pub new_client_rate: Option<f64>,
    /// Idle time after which another client may take a client's slot. Compliant clients poll at
    /// intervals of up to 17 minutes (poll 10), and must not lose their slots to a flood of new
    /// clients.
    pub idle: Duration,
    /// Number of clients to store for rate limits, in slots of 8 bytes; rounded up to a power of
    /// two.
    pub clients: usize,
    /// Bits of an IPv4 address that identify a client.
    pub ipv4_prefix: u8,
    /// Bits of an IPv6 address that identify a client; by default those of the subnet, because a
    /// host may use any address of its subnet (RFC 4291, section 2.5.1).
    pub ipv6_prefix: u8,
    /// Prefixes that are served; if there are any, no others are.
    pub allow: Vec<Prefix>,
    /// Prefixes that are not served. The longest matching prefix of both lists decides.
    pub deny: Vec<Prefix>,
    /// True to send a RATE kiss to a client that exceeds its limit: at most one until the next
    /// request of the client is admitted.
    pub kiss_rate: bool,
    /// True to send DENY kisses to denied clients: at most 1,000 per second in total.
    pub kiss_deny: bool,
}

impl Default for LimitsConfig {
    /// Uses no limits and no lists.
    fn default() -> Self {
        Self {
            rate: None,
            burst: 8,
            new_client_rate: None,
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
    /// Returns true if any limit or list is configured.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.rate.is_some()
            || self.new_client_rate.is_some()
            || !self.allow.is_empty()
            || !self.deny.is_empty()
    }

    /// Returns the first rule that the options break.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        if let Some(rate) = self.rate.filter(|rate| !LIMIT_RATES.contains(rate)) {
            return Err(ConfigError::LimitRate(rate));
        }
        if let Some(rate) = self.new_client_rate.filter(|rate| !NEW_CLIENT_RATES.contains(rate)) {
            return Err(ConfigError::NewClientRate(rate));
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
            |c| c.new_client_rate = Some(0.5),
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
        let expected = "10000 requests at 0.001 per second take 116 days, and limits cover \
                        30; raise --limit-rate or lower --limit-burst";
        assert_eq!(message, expected);
    }
}
