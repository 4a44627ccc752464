//! What agents' clocks show, where another controller has heard their answers: what they say of
//! themselves every few seconds tells it as well.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::clocks::Answer;
use super::conduct::Controller;
use super::run::CampaignError;
use super::wait::RETRY;
use crate::AgentName;
use crate::nats::Store;
use crate::order::AgentState;

/// Agents say something of themselves more often than that.
const PATIENCE: Duration = Duration::from_secs(6);

impl Controller<'_> {
    /// Waits until each agent has said something new; one that does not is passed over.
    pub(super) async fn hear_clocks(&mut self) -> Result<(), CampaignError> {
        let started = Instant::now();
        let mut left: Vec<AgentName> = self.given.keys().cloned().collect();
        // The word that each had said last, and when that was still so.
        let mut before: BTreeMap<AgentName, (u64, i64)> = BTreeMap::new();
        while !left.is_empty() && started.elapsed() < PATIENCE && (self.flow)().is_continue() {
            for name in std::mem::take(&mut left) {
                let looked_ns = self.utc_ns();
                let kept = self.asked(async |store: &Store| store.agent(&name).await).await?;
                let revision = kept.as_ref().map_or(0, |kept| kept.revision);
                let asked_ns = before.get(&name).filter(|(old, _)| *old < revision);
                let asked_ns = asked_ns.map(|(_, asked_ns)| *asked_ns);
                let state = kept.and_then(|kept| AgentState::parse(&kept.bytes));
                if let Some((asked_ns, said_ns)) = asked_ns.zip(state.and_then(|one| one.at_ns)) {
                    let heard_ns = self.utc_ns();
                    self.answers.push(Answer { agent: name, asked_ns, said_ns, heard_ns });
                    continue;
                }
                before.insert(name.clone(), (revision, looked_ns));
                left.push(name);
            }
            sleep(RETRY).await;
        }
        Ok(())
    }
}
