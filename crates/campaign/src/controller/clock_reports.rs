//! Clock readings of agents whose replies went to another controller: their heartbeats, sent every
//! few seconds, include them as well.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::clocks::ClockExchange;
use super::driver::Controller;
use super::run::CampaignError;
use super::wait::RETRY;
use crate::AgentName;
use crate::nats::BrokerStore;
use crate::order::AgentState;

/// Timeout, longer than the heartbeat interval of agents.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(6);

impl Controller<'_> {
    /// Waits for a new heartbeat of each agent; an agent without one is skipped.
    pub(super) async fn await_clock_reports(&mut self) -> Result<(), CampaignError> {
        let started = Instant::now();
        let mut left: Vec<AgentName> = self.issued_orders.keys().cloned().collect();
        // Revision of each agent's last heartbeat, and the last time at which it was current.
        let mut before: BTreeMap<AgentName, (u64, i64)> = BTreeMap::new();
        while !left.is_empty()
            && started.elapsed() < HEARTBEAT_TIMEOUT
            && (self.flow)().is_continue()
        {
            for name in std::mem::take(&mut left) {
                let read_ns = self.utc_ns();
                let stored =
                    self.with_retry(async |store: &BrokerStore| store.agent(&name).await).await?;
                let revision = stored.as_ref().map_or(0, |stored| stored.revision);
                let requested_ns = before.get(&name).filter(|(old, _)| *old < revision);
                let requested_ns = requested_ns.map(|(_, requested_ns)| *requested_ns);
                let state = stored.and_then(|stored| AgentState::parse(&stored.bytes));
                if let Some((requested_ns, reported_ns)) =
                    requested_ns.zip(state.and_then(|one| one.at_ns))
                {
                    let received_ns = self.utc_ns();
                    self.answers.push(ClockExchange {
                        agent: name,
                        requested_ns,
                        reported_ns,
                        received_ns,
                    });
                    continue;
                }
                before.insert(name.clone(), (revision, read_ns));
                left.push(name);
            }
            sleep(RETRY).await;
        }
        Ok(())
    }
}
