//! Check that the controller's clock and those of the agents agree well enough for a common start
//! time. The controller's clock is the only one of a campaign that is not checked otherwise: if it
//! is behind, agents receive the start time after it has passed, and if it is ahead, all wait until
//! it comes. Pure.
//!
//! The time reported in a reply lies between the request and its receipt, unless the clocks differ.
//! The result is therefore a lower limit of their difference.

use std::time::Duration;

use crate::AgentName;

/// Request and receipt times by the controller's clock, and the agent's clock reading in between,
/// in ns since 1970.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ClockExchange {
    pub(super) agent: AgentName,
    pub(super) requested_ns: i64,
    pub(super) reported_ns: i64,
    pub(super) received_ns: i64,
}

impl ClockExchange {
    /// Returns the smallest possible offset of the controller's clock from this agent's; negative
    /// if it is behind.
    const fn ahead_ns(&self) -> i64 {
        if self.reported_ns > self.received_ns {
            self.received_ns.saturating_sub(self.reported_ns)
        } else if self.reported_ns < self.requested_ns {
            self.requested_ns.saturating_sub(self.reported_ns)
        } else {
            0
        }
    }
}

/// Returns the reason why a start time this far ahead cannot be common to all, in one line.
pub(super) fn clock_problem(answers: &[ClockExchange], lead: Duration) -> Option<String> {
    let worst = answers.iter().max_by_key(|answer| answer.ahead_ns().unsigned_abs())?;
    let ahead = Duration::from_nanos(worst.ahead_ns().unsigned_abs());
    if ahead < lead {
        return None;
    }
    let (side, so) = if worst.ahead_ns() > 0 {
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
