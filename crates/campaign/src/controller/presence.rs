//! Detection of missing agents by their heartbeats. Pure: the caller reads the heartbeats from the
//! broker, and supplies their revisions and the time for which the broker was reachable.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::AgentName;
use crate::nats::HEARTBEAT_TTL;

/// Last heartbeat of one agent.
#[derive(Clone, PartialEq, Eq, Debug)]
struct LastHeartbeat {
    /// Revision of the heartbeat at the broker; `None` if there is none.
    revision: Option<u64>,
    /// Time since the last new heartbeat, without times when the broker was unreachable.
    since_last: Duration,
}

/// Tracker of the presence of the agents whose reports are incomplete, by their last heartbeats.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct AgentPresenceTracker(BTreeMap<AgentName, LastHeartbeat>);

impl AgentPresenceTracker {
    /// Records a read of an agent's heartbeat: its revision, or `None` if it has expired at the
    /// broker. `elapsed` is the time since the previous read.
    pub(super) fn record_read(
        &mut self,
        name: &AgentName,
        revision: Option<u64>,
        elapsed: Duration,
    ) {
        let Some(heartbeat) = self.0.get_mut(name) else {
            let since_last = if revision.is_none() { HEARTBEAT_TTL } else { Duration::ZERO };
            self.0.insert(name.clone(), LastHeartbeat { revision, since_last });
            return;
        };
        let is_new = revision.is_some() && revision != heartbeat.revision;
        heartbeat.since_last =
            if is_new { Duration::ZERO } else { heartbeat.since_last.saturating_add(elapsed) };
        heartbeat.revision = revision;
    }

    /// Returns the time since the last heartbeat of a missing agent; `None` if its heartbeat has
    /// not expired.
    pub(super) fn missing_for(&self, name: &AgentName) -> Option<Duration> {
        self.0
            .get(name)
            .filter(|heartbeat| heartbeat.revision.is_none())
            .map(|heartbeat| heartbeat.since_last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEAT: Duration = Duration::from_secs(2);

    #[test]
    fn absence_counts_from_the_last_word() {
        let (mut presence, name) = (AgentPresenceTracker::default(), "n1".parse().unwrap());
        assert_eq!(presence.missing_for(&name), None);
        for word in [Some(3), Some(4), Some(4), Some(4), Some(4), Some(4)] {
            presence.record_read(&name, word, BEAT);
            assert_eq!(presence.missing_for(&name), None);
        }
        presence.record_read(&name, None, BEAT);
        assert_eq!(presence.missing_for(&name), Some(BEAT * 5));
        presence.record_read(&name, None, BEAT);
        assert_eq!(presence.missing_for(&name), Some(BEAT * 6));
        presence.record_read(&name, Some(9), BEAT);
        presence.record_read(&name, None, BEAT);
        assert_eq!(presence.missing_for(&name), Some(BEAT));
    }

    #[test]
    fn an_agent_without_any_heartbeat_has_been_missing_for_the_heartbeat_ttl() {
        let (mut presence, name) = (AgentPresenceTracker::default(), "n1".parse().unwrap());
        presence.record_read(&name, None, BEAT);
        assert_eq!(presence.missing_for(&name), Some(HEARTBEAT_TTL));
    }
}
