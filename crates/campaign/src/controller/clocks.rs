//! Whether the controller's clock and those of agents can name one instant. The controller's is the
//! only clock of a campaign that nobody else has looked at: where it is behind, every agent hears
//! of the instant when it is over, and where it is ahead, all wait until it comes. Pure.
//!
//! An answer's own time lies between when it was asked for and when it was heard, unless the two
//! clocks differ. So what is found is what they differ by at least.

use std::time::Duration;

use crate::AgentName;

/// When an agent was asked and heard, by the controller's clock, and what it said its own clock
/// showed in between; in ns since 1970.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Answer {
    pub(super) agent: AgentName,
    pub(super) asked_ns: i64,
    pub(super) said_ns: i64,
    pub(super) heard_ns: i64,
}

impl Answer {
    /// How far the controller's clock is ahead of this agent's at least; behind where it is
    /// negative.
    const fn ahead_ns(&self) -> i64 {
        if self.said_ns > self.heard_ns {
            self.heard_ns.saturating_sub(self.said_ns)
        } else if self.said_ns < self.asked_ns {
            self.asked_ns.saturating_sub(self.said_ns)
        } else {
            0
        }
    }
}

/// What keeps an instant that is so far ahead from being one for all, in one line.
pub(super) fn hindrance(answers: &[Answer], lead: Duration) -> Option<String> {
    let worst = answers.iter().max_by_key(|answer| answer.ahead_ns().unsigned_abs())?;
    let ahead = Duration::from_nanos(worst.ahead_ns().unsigned_abs());
    if ahead < lead {
        return None;
    }
    let (side, so) = if worst.ahead_ns() > 0 {
        ("ahead of", "they would start that much later than meant")
    } else {
        ("behind", "they would be told of an instant when it has passed")
    };
    let (ahead_s, lead_s) = (ahead.as_secs_f64(), lead.as_secs_f64());
    Some(format!(
        "this machine's clock is {ahead_s:.1} s or more {side} that of agent {}, and instants are \
         named {lead_s} s ahead, so {so}; set this clock right, or raise --lead",
        worst.agent
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hindered(said_s: f64) -> Option<String> {
        let ns = |s: f64| (s * 1e9) as i64;
        let answer = |agent: &str, said_s: f64| Answer {
            agent: agent.parse().unwrap(),
            asked_ns: ns(100.0),
            said_ns: ns(said_s),
            heard_ns: ns(101.0),
        };
        hindrance(&[answer("n1", 100.5), answer("n2", said_s)], Duration::from_secs(2))
    }

    #[test]
    fn a_clock_that_names_no_instant_for_all_is_told() {
        for said_s in [98.1, 99.0, 100.0, 101.0, 102.9] {
            assert_eq!(hindered(said_s), None, "{said_s}");
        }
        let behind = hindered(104.5).unwrap();
        assert!(
            behind.starts_with("this machine's clock is 3.5 s or more behind that of agent n2")
        );
        assert!(behind.contains("when it has passed") && behind.contains("--lead"), "{behind}");
        let ahead = hindered(95.0).unwrap();
        assert!(
            ahead.starts_with("this machine's clock is 5.0 s or more ahead of that of agent n2")
        );
        assert_eq!(hindrance(&[], Duration::ZERO), None);
    }
}
