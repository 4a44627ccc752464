//! Which agents are gone, and for how long: counted from when they last said that they are there.
//! Pure; whoever looks at the broker says what was found, and how much time has passed in which the
//! broker was there.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::AgentName;
use crate::nats::AGENT_AGE_MAX;

/// What is known of one agent.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Seen {
    /// Which of its words was the last; none where the broker knows of none.
    word: Option<u64>,
    /// For how long it has said nothing new.
    silent: Duration,
}

/// The agents that something is still to come of.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Presence(BTreeMap<AgentName, Seen>);

impl Presence {
    /// The broker has this word of an agent, by its revision, or none: it forgets an agent that
    /// says nothing more. Since the look before, so much time has passed.
    pub(super) fn note(&mut self, name: &AgentName, word: Option<u64>, since: Duration) {
        let Some(seen) = self.0.get_mut(name) else {
            let silent = if word.is_none() { AGENT_AGE_MAX } else { Duration::ZERO };
            self.0.insert(name.clone(), Seen { word, silent });
            return;
        };
        let is_new = word.is_some() && word != seen.word;
        seen.silent = if is_new { Duration::ZERO } else { seen.silent.saturating_add(since) };
        seen.word = word;
    }

    /// For how long an agent has been gone, where it is.
    pub(super) fn gone(&self, name: &AgentName) -> Option<Duration> {
        self.0.get(name).filter(|seen| seen.word.is_none()).map(|seen| seen.silent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEAT: Duration = Duration::from_secs(2);

    #[test]
    fn absence_counts_from_the_last_word() {
        let (mut presence, name) = (Presence::default(), "n1".parse().unwrap());
        assert_eq!(presence.gone(&name), None);
        for word in [Some(3), Some(4), Some(4), Some(4), Some(4), Some(4)] {
            presence.note(&name, word, BEAT);
            assert_eq!(presence.gone(&name), None);
        }
        presence.note(&name, None, BEAT);
        assert_eq!(presence.gone(&name), Some(BEAT * 5));
        presence.note(&name, None, BEAT);
        assert_eq!(presence.gone(&name), Some(BEAT * 6));
        presence.note(&name, Some(9), BEAT);
        presence.note(&name, None, BEAT);
        assert_eq!(presence.gone(&name), Some(BEAT));
    }

    #[test]
    fn one_that_was_never_seen_has_been_gone_for_longer_than_the_broker_knows() {
        let (mut presence, name) = (Presence::default(), "n1".parse().unwrap());
        presence.note(&name, None, BEAT);
        assert_eq!(presence.gone(&name), Some(AGENT_AGE_MAX));
    }
}
