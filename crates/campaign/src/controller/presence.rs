//! Missing agents, and the time since their last heartbeat. Pure; the caller reads the broker and
//! supplies the revisions and the time for which the broker was reachable.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::AgentName;
use crate::nats::HEARTBEAT_TTL;

/// Last heartbeat of one agent.
#[derive(Clone, PartialEq, Eq, Debug)]
struct LastHeartbeat {
    /// Revision of the last heartbeat; `None` if the broker has none.
    word: Option<u64>,
    /// Time since the last new heartbeat.
    since_last: Duration,
}

/// Agents with outstanding reports.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Presence(BTreeMap<AgentName, LastHeartbeat>);

impl Presence {
    /// Records the revision of an agent's heartbeat at the broker, or its absence: heartbeats
    /// expire there. `since` is the time since the previous read.
    pub(super) fn note(&mut self, name: &AgentName, word: Option<u64>, since: Duration) {
        let Some(heartbeat) = self.0.get_mut(name) else {
            let since_last = if word.is_none() { HEARTBEAT_TTL } else { Duration::ZERO };
            self.0.insert(name.clone(), LastHeartbeat { word, since_last });
            return;
        };
        let is_new = word.is_some() && word != heartbeat.word;
        heartbeat.since_last =
            if is_new { Duration::ZERO } else { heartbeat.since_last.saturating_add(since) };
        heartbeat.word = word;
    }

    /// Returns the time for which an agent has been missing, if it is.
    pub(super) fn missing_for(&self, name: &AgentName) -> Option<Duration> {
        self.0
            .get(name)
            .filter(|heartbeat| heartbeat.word.is_none())
            .map(|heartbeat| heartbeat.since_last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEAT: Duration = Duration::from_secs(2);

    #[test]
    fn absence_counts_from_the_last_word() {
        let (mut presence, name) = (Presence::default(), "n1".parse().unwrap());
        assert_eq!(presence.missing_for(&name), None);
        for word in [Some(3), Some(4), Some(4), Some(4), Some(4), Some(4)] {
            presence.note(&name, word, BEAT);
            assert_eq!(presence.missing_for(&name), None);
        }
        presence.note(&name, None, BEAT);
        assert_eq!(presence.missing_for(&name), Some(BEAT * 5));
        presence.note(&name, None, BEAT);
        assert_eq!(presence.missing_for(&name), Some(BEAT * 6));
        presence.note(&name, Some(9), BEAT);
        presence.note(&name, None, BEAT);
        assert_eq!(presence.missing_for(&name), Some(BEAT));
    }

    #[test]
    fn an_agent_without_any_heartbeat_has_been_missing_for_the_heartbeat_ttl() {
        let (mut presence, name) = (Presence::default(), "n1".parse().unwrap());
        presence.note(&name, None, BEAT);
        assert_eq!(presence.missing_for(&name), Some(HEARTBEAT_TTL));
    }
}
