//! Check that the controller's clock agrees with those of the agents well enough for a common start
//! time. The agents' clocks are also checked by their reported offsets; the controller's clock is
//! checked only here. If it is behind, agents receive a start time that has passed; if it is ahead,
//! they start late. Pure.
//!
//! If the clocks agree, the agent's reading lies between the controller's readings at the request
//! and at the receipt of the reply. The distance from this interval is therefore a lower limit of
//! the offset between the clocks.

use std::time::Duration;

use crate::AgentName;

/// Clock reading of an agent, with the times of request and receipt by the controller's clock: UTC,
/// in ns since 1970.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ClockExchange {
    pub(super) agent: AgentName,
    pub(super) requested_ns: i64,
    pub(super) reported_ns: i64,
    pub(super) received_ns: i64,
}

impl ClockExchange {
    /// Returns the smallest possible offset of the controller's clock from the agent's, in ns;
    /// negative if the controller's clock is behind.
    const fn offset_min_ns(&self) -> i64 {
        if self.reported_ns > self.received_ns {
            self.received_ns.saturating_sub(self.reported_ns)
        } else if self.reported_ns < self.requested_ns {
            self.requested_ns.saturating_sub(self.reported_ns)
        } else {
            0
        }
    }
}

/// Returns why agents cannot start together at a time `lead` from now, in one line; `None` if no
/// clock is known to differ by `lead` or more.
pub(super) fn clock_problem(exchanges: &[ClockExchange], lead: Duration) -> Option<String> {
    let worst = exchanges.iter().max_by_key(|exchange| exchange.offset_min_ns().unsigned_abs())?;
    let ahead = Duration::from_nanos(worst.offset_min_ns().unsigned_abs());
    if ahead < lead {
        return None;
    }
    let (side, so) = if worst.offset_min_ns() > 0 {
        ("ahead of", "they would start late by as much")
    } else {
        ("behind", "they would receive a start time that has passed")
    };
    let (ahead_s, lead_s) = (ahead.as_secs_f64(), lead.as_secs_f64());
    Some(format!(
        "this host's clock is {ahead_s:.1} s or more {side} that of agent {}, and start times are \
         {lead_s} s ahead, so {so}; synchronise this clock, or raise --lead-time",
        worst.agent
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hindered(reported_s: f64) -> Option<String> {
        let ns = |s: f64| (s * 1e9) as i64;
        let answer = |agent: &str, reported_s: f64| ClockExchange {
            agent: agent.parse().unwrap(),
            requested_ns: ns(100.0),
            reported_ns: ns(reported_s),
            received_ns: ns(101.0),
        };
        clock_problem(&[answer("n1", 100.5), answer("n2", reported_s)], Duration::from_secs(2))
    }

    #[test]
    fn a_clock_error_that_prevents_a_common_start_time_is_reported() {
        for reported_s in [98.1, 99.0, 100.0, 101.0, 102.9] {
            assert_eq!(hindered(reported_s), None, "{reported_s}");
        }
        let behind = hindered(104.5).unwrap();
        assert!(behind.starts_with("this host's clock is 3.5 s or more behind that of agent n2"));
        assert!(behind.contains("that has passed") && behind.contains("--lead-time"), "{behind}");
        let ahead = hindered(95.0).unwrap();
        assert!(ahead.starts_with("this host's clock is 5.0 s or more ahead of that of agent n2"));
        assert_eq!(clock_problem(&[], Duration::ZERO), None);
    }
}
